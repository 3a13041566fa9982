// The texts of the lessons, in English and in Korean. views/lesson_panel.js fills in the {names}; all
// numbers are those of the open trace or of the reader's own task.

export const COURSE_MESSAGES = {
  lessonTokens: ["Tokens and pieces", "토큰과 서브워드"],
  lessonTokens1: [
    "A model reads neither letters nor words. A tokenizer cuts a text into tokens from a fixed list. It has cut this sentence of {words} words into {pieces} pieces.",
    "모델은 글자나 단어를 그대로 읽지 않습니다. 토크나이저(tokenizer)가 정해진 목록에 있는 토큰(token)으로 텍스트를 나눕니다. 이 문장의 단어 {words}개는 서브워드(word piece) {pieces}개로 나뉘었습니다.",
  ],
  lessonTokens2: ["The list was learned from many texts: what occurs often becomes one piece, like the words that are marked now.", "이 목록은 많은 텍스트에서 학습한 것입니다. 지금 표시한 단어처럼 자주 나오는 문자열은 서브워드 하나가 됩니다."],
  lessonTokensAsk: ["Which word is cut into the most pieces?", "어떤 단어가 가장 많은 서브워드로 나뉠까요?"],
  lessonTokensReveal: ["“{best}” became {value} pieces. A rare word is assembled from smaller pieces, so hardly any word is unknown to the model.", "“{best}” 단어는 서브워드 {value}개로 나뉘었습니다. 드문 단어도 더 작은 서브워드를 이어서 나타내므로 모델이 모르는 단어는 거의 없습니다."],
  lessonTokens3: [
    "A dot in front of a label, as in ·ake, marks a piece (word piece) that continues a word. [CLS] and [SEP] are tokens of their own: the start and the end. From here on, the model sees only the number of each token in the list.",
    "·ake처럼 앞에 점이 붙은 서브워드는 바로 앞의 서브워드와 한 단어를 이룹니다. [CLS]와 [SEP]도 토큰이며 시작과 끝을 나타냅니다. 이제부터 모델이 보는 것은 목록에 있는 토큰의 번호뿐입니다.",
  ],
  lessonTokensDo: ["Type a text of your own below the picture, with a word that is cut into at least three pieces, and press “cut”.", "그림 아래에 서브워드 세 개 이상으로 나뉠 만한 단어가 든 텍스트를 직접 쓰고 “나누기”를 누르세요."],
  lessonTokensEnd: ["Your {words} words became {pieces} pieces; “{longest}” alone became {n}.", "입력한 단어 {words}개가 서브워드 {pieces}개로 나뉘었습니다. “{longest}” 단어만 {n}개입니다."],

  lessonEmbeddings: ["Embeddings", "임베딩"],
  lessonEmbeddings1: [
    "Each token is looked up in a table. Its row is the token's embedding: {d} numbers, here as a strip (up is positive, down is negative). The model computes with these vectors only.",
    "토큰마다 표에서 행 하나를 가져옵니다. 그 행이 토큰의 임베딩(embedding)이며 {d}차원 벡터입니다. 그림의 띠에서 위는 양수, 아래는 음수입니다. 모델은 이 벡터로만 계산합니다.",
  ],
  lessonEmbeddings2: ["Two vectors are compared by the cosine of the angle between them: 1 is the same direction, 0 is unrelated, −1 is the opposite.", "두 벡터는 서로 이루는 각의 코사인으로 비교합니다. 1이면 같은 방향, 0이면 서로 무관한 방향, −1이면 반대 방향입니다."],
  lessonEmbeddingsAsk: ["Which token's embedding is most similar to that of “dog”?", "어떤 토큰의 임베딩이 “dog”의 임베딩과 가장 비슷할까요?"],
  lessonEmbeddingsReveal: ["“{best}”, with a cosine of {value}. The model learned this: training moved words that are used alike closer together.", "“{best}”이며 코사인은 {value}입니다. 정해 준 것이 아니라 학습된 것입니다. 학습하면서 비슷하게 쓰이는 단어의 벡터가 서로 가까워졌습니다."],
  lessonEmbeddings3: [
    "The two occurrences of “the” have the same vector, with a cosine of 1: the table knows neither neighbors nor order. Positions and attention will change that.",
    "두 “the”의 벡터는 같으므로 코사인은 1입니다. 임베딩 표는 주변 단어도 순서도 모릅니다. 위치 인코딩과 어텐션(attention)을 거치면 달라집니다.",
  ],
  lessonEmbeddingsDo: ["Choose a pair with a negative cosine: click a token on the left to compare all others with it, then click a bar.", "코사인이 음수인 쌍을 고르세요. 왼쪽의 토큰을 누르면 나머지가 그 토큰과 비교됩니다. 그다음 막대를 누르세요."],
  lessonEmbeddingsEnd: ["“{a}” and “{b}” have a cosine of {x}; “dog” and “cat” have {y}.", "“{a}”, “{b}” 쌍의 코사인은 {x}이고, “dog”, “cat” 쌍의 코사인은 {y}입니다."],

  lessonPositions: ["Positions", "위치"],
  lessonPositions1: [
    "Attention itself does not know the order of the words: shuffle them, and every word still gets the same result. So a vector of its position is added to each embedding (positional encoding).",
    "어텐션 자체는 단어의 순서를 모릅니다. 단어를 섞어도 각 단어의 결과는 같습니다. 그래서 임베딩마다 위치를 나타내는 벡터를 더합니다. 이것이 위치 인코딩(positional encoding)입니다.",
  ],
  lessonPositions2: [
    "The picture shows the vectors that this model added to the {n} tokens. Every dimension is a wave: sine in even dimensions, cosine in odd ones. The waves get longer from left to right; the framed dimension is drawn below.",
    "그림은 이 모델이 토큰 {n}개에 더한 벡터입니다. 각 차원은 하나의 파동입니다. 짝수 차원은 사인, 홀수 차원은 코사인이며 오른쪽으로 갈수록 파장이 길어집니다. 테두리로 표시한 차원을 아래에 그렸습니다.",
  ],
  lessonPositions3: ["Fast waves tell neighbors apart, slow ones tell the beginning from the end.", "빠른 파동은 이웃한 위치를, 느린 파동은 문장의 앞과 뒤를 구별합니다."],
  lessonPositionsAsk: ["Which position has the vector most similar to that of position {here}?", "{here}번 위치의 벡터와 가장 비슷한 벡터는 몇 번 위치의 것일까요?"],
  lessonPositionsReveal: ["Position {best}, with a cosine of {value}: the closer, the more similar, and the same for every pair at this distance.", "{best}번 위치이며 코사인은 {value}입니다. 가까울수록 비슷하고, 거리가 같으면 어느 쌍이나 값이 같습니다."],
  lessonPositionsDo: ["Move the slider to a dimension whose wave is longer than the whole sentence.", "슬라이더를 움직여 파장이 문장 전체보다 긴 차원을 찾으세요."],
  lessonPositionsEnd: ["Dimension {i} has a wavelength of {w} positions. Along your {n} tokens the model's own numbers go from {a} to {b}.", "{i}번 차원의 파장은 {w}칸입니다. 토큰 {n}개를 따라 모델의 값은 {a}에서 {b}(으)로 바뀝니다."],

  lessonRecurrent: ["RNN: where attention began", "RNN과 어텐션의 시작"],
  lessonRecurrent1: [
    "Before the Transformer, a recurrent network (RNN) read a text token by token and updated a hidden state. This one reads a date character by character, forwards and backwards, and leaves {n} states of {d} numbers, one for each token.",
    "트랜스포머 이전에는 순환 신경망(RNN)이 텍스트를 토큰 하나씩 차례로 읽으며 은닉 상태(hidden state)를 갱신했습니다. 이 모델은 날짜를 글자 단위로 앞뒤 양방향에서 읽고, 토큰마다 하나씩 {d}차원 은닉 상태 {n}개를 남깁니다.",
  ],
  lessonRecurrent2: [
    "A decoder that gets only the last state must squeeze the whole text into it. Bahdanau and colleagues (2014) let it look at all states again before each token. Steps 1 and 2: the states of the encoder are the keys and values; the decoder's previous state is the query.",
    "마지막 상태만 받는 디코더(decoder)는 텍스트 전체를 벡터 하나에 담아야 합니다. 바다나우(Bahdanau) 등은 2014년에 토큰을 생성할 때마다 모든 상태를 다시 보는 방법을 제안했습니다. 1, 2단계: 인코더(encoder)의 은닉 상태가 키와 밸류이고, 디코더의 직전 은닉 상태가 쿼리입니다.",
  ],
  lessonRecurrent3: ["The decoder has written “1990-” and is about to write the first digit of the month.", "디코더는 “1990-”까지 생성했고, 이제 월의 첫 숫자를 생성합니다."],
  lessonRecurrentAsk: ["Which character will it look at most?", "어느 글자를 가장 많이 볼까요?"],
  lessonRecurrentReveal: ["“{best}”, with {value} of the weight: this character is enough to tell the month.", "“{best}”이며 가중치는 {value}입니다. 이 글자만으로 몇 월인지 알 수 있습니다."],
  lessonRecurrent4: [
    "Steps 3 and 4: query and key are compared by a small network, the score {additive}: additive attention. Softmax turns the scores into weights that sum to 1.",
    "3, 4단계: 쿼리와 키를 작은 신경망으로 비교합니다. 점수는 {additive}이며, 이것을 가산 어텐션(additive attention)이라고 합니다. 소프트맥스가 점수를 합이 1인 가중치로 바꿉니다.",
  ],
  lessonRecurrent5: [
    "Steps 5 and 6: the weighted sum of the states is the context vector. Together with the previous token it gives the new state, and from that the probabilities of the next token. Then it starts again at step 2.",
    "5, 6단계: 은닉 상태의 가중합이 문맥 벡터(context vector)입니다. 문맥 벡터와 직전 토큰으로 새 은닉 상태를 계산하고, 거기서 다음 토큰의 확률이 나옵니다. 그다음 2단계로 돌아갑니다.",
  ],
  lessonRecurrentDo: ["Click another token of the answer above the picture, and watch the six steps change.", "그림 위의 출력에서 다른 토큰을 누르고 여섯 단계가 어떻게 바뀌는지 보세요."],
  lessonRecurrentEnd: ["To write “{token}”, “{key}” got the largest weight, {w} (score {e}). The entropy of the row is {h} bits, and the context vector has length {c}.", "“{token}” 토큰을 생성할 때 “{key}”의 가중치가 {w}(으)로 가장 큽니다(점수 {e}). 이 행의 엔트로피는 {h}비트, 문맥 벡터의 길이는 {c}입니다."],

  lessonVectors: ["Query, key, value", "쿼리, 키, 밸류"],
  lessonVectors1: [
    "With attention, each token looks at other tokens and takes a share of each; its shares sum to 1. Every row is a token that looks, and the area of a circle is the share it takes: the {w}.",
    "어텐션에서 각 토큰은 다른 토큰들을 보고 저마다 일정한 비율로 정보를 가져오며, 그 비율의 합은 1입니다. 행 하나가 보는 쪽 토큰이고, 원의 넓이가 그 비율, 곧 {w}입니다.",
  ],
  lessonVectors2: [
    "In a Transformer the tokens of a sentence look at each other (self-attention). Take “{it}” in this sentence, in layer {layer}, head {head}.",
    "트랜스포머에서는 한 문장의 토큰들이 서로를 봅니다(셀프 어텐션, self-attention). 이 문장의 “{it}” 토큰을 레이어 {layer}, {head}번 헤드에서 살펴봅니다.",
  ],
  lessonVectorsAsk: ["Which token will “{it}” look at most?", "“{it}” 토큰은 어느 토큰을 가장 많이 볼까요?"],
  lessonVectorsReveal: ["“{best}”, with {value} of the weight. These are the model's own weights.", "“{best}”이며 가중치는 {value}입니다. 모델이 실제로 계산한 가중치입니다."],
  lessonVectors3: [
    "How does it find it? Every token becomes three vectors of {d} numbers. Its {q} says what it looks for, its {k} what it offers, its {v} what it passes on. Three learned matrices compute them.",
    "어떻게 찾을까요? 모든 토큰은 {d}차원 벡터 세 개로 바뀝니다. {q}는 무엇을 찾는지, {k}는 무엇을 제공하는지, {v}는 무엇을 전달하는지를 담습니다. 학습된 행렬 세 개로 계산합니다.",
  ],
  lessonVectors4: [
    "Query and key are multiplied element by element and added up: the dot product. Divided by {root}, which the next lesson explains, it is the score of the pair. From left to right: scores, scores after the mask, and weights. Rings are negative.",
    "쿼리와 키를 같은 자리끼리 곱해 모두 더한 값이 내적(dot product)입니다. 이것을 {root}로 나누면 그 쌍의 점수(score)입니다. 나누는 이유는 다음 강의에서 설명합니다. 왼쪽부터 점수, 마스크를 적용한 점수, 가중치입니다. 고리는 음수입니다.",
  ],
  lessonVectors5: [
    "The output of a head is the weighted sum of the values: each {v} times its weight, all added up. A key with a weight of 0 adds nothing, whatever its value is.",
    "헤드의 출력은 밸류의 가중합(weighted sum)입니다. 각 {v}에 가중치를 곱해 모두 더합니다. 가중치가 0인 키는 밸류가 무엇이든 아무것도 더하지 않습니다.",
  ],
  lessonVectors6: [
    "When a translator writes, the query comes from the word being written, and keys and values from the source (cross-attention): every written word looks at the whole source.",
    "번역문을 생성할 때 쿼리는 생성 중인 단어에서, 키와 밸류는 원문에서 옵니다(크로스 어텐션, cross-attention). 생성하는 단어마다 원문 전체를 봅니다.",
  ],
  lessonVectorsDo: ["Choose the largest circle of the marked row, with {left} {right} or a click.", "표시된 행에서 가장 큰 원을 {left} {right} 키나 클릭으로 고르세요."],
  lessonVectorsTouch: ["Tap the largest circle of the marked row.", "표시된 행에서 가장 큰 원을 누르세요."],
  lessonVectorsEnd: ["For “{query}” and “{key}” the dot product is {e}; divided by √{d} that is {s}, and softmax makes {w} of it, the largest weight of the row.", "“{query}” 쿼리와 “{key}” 키의 내적은 {e}, √{d}(으)로 나누면 {s}이고, 소프트맥스를 거치면 이 행에서 가장 큰 가중치 {w}이(가) 됩니다."],

  lessonScale: ["Scaling", "스케일링"],
  lessonScale1: [
    "Take random vectors whose numbers have variance 1. The more dimensions they have, the wider their dot products spread: the standard deviation is {root} for {dk} dimensions. Measured at 512 dimensions, it is {deviation}.",
    "분산이 1인 난수 벡터로 재어 봅니다. 벡터의 차원이 클수록 내적이 넓게 퍼집니다. {dk}차원이면 표준편차가 {root}입니다. 512차원에서 잰 표준편차는 {deviation}입니다.",
  ],
  lessonScale2: [
    "With scores that large, softmax puts almost all weight on one key: {bits} bits of entropy are left, instead of {even} bits after division by {root}.",
    "점수가 그렇게 커지면 소프트맥스(softmax)의 가중치가 키 하나에 몰립니다. 엔트로피는 {bits}비트만 남습니다. {root}로 나누면 {even}비트입니다.",
  ],
  lessonScaleAsk: ["At 512 dimensions, through which softmax does more gradient flow back?", "512차원에서 기울기가 더 크게 전달되는 소프트맥스는 어느 쪽일까요?"],
  lessonScaleReveal: ["The answer is “{best}”: the norm of the gradient is {value}. A saturated softmax passes little gradient back, so the model learns slowly or not at all.", "“{best}” 쪽이며 기울기의 노름은 {value}입니다. 소프트맥스가 포화하면 기울기가 조금밖에 전달되지 않아 학습이 느려지거나 멈춥니다."],
  lessonScale3: [
    "So scores are divided by {root} (scaling): the standard deviation stays near 1 at every width, and entropy and gradient hardly change. In the model of this course {dk} is {d}.",
    "그래서 점수를 {root}로 나눕니다(스케일링, scaling). 그러면 차원이 얼마든 표준편차는 1에 가깝고, 엔트로피와 기울기도 거의 달라지지 않습니다. 이 모델의 {dk}는 {d}입니다.",
  ],
  lessonScaleDo: ["Among the edit controls (“edit this head”), clear the checkbox “÷ {root}”, and compare before (rings) and after (discs).", "수정 도구(“이 헤드 수정”)에서 “÷ {root}”의 체크를 끄고 이전(고리)과 이후(원)를 비교하세요."],
  lessonScaleEnd: ["Without the division by √{d}, the entropy of the row “{query}” went from {a} to {b} bits, and its largest weight from {c} to {e}.", "√{d}(으)로 나누지 않으니 “{query}” 행의 엔트로피는 {a}비트에서 {b}비트로, 가장 큰 가중치는 {c}에서 {e}(으)로 바뀌었습니다."],

  lessonSoftmax: ["Softmax and temperature", "소프트맥스와 온도"],
  lessonSoftmax1: [
    "Softmax turns the scores of one row into weights: e to the power of each score, divided by the sum of all of them. It works row by row, so every row sums to 1.",
    "소프트맥스(softmax)는 한 행의 점수를 가중치로 바꿉니다. 점수마다 e의 거듭제곱을 구해 그 합으로 나눕니다. 행마다 따로 계산하므로 각 행의 합은 1입니다.",
  ],
  lessonSoftmax2: ["Scores can be divided by a temperature first. Here it is 0.25: the differences grow, and the largest score takes almost everything.", "점수를 먼저 온도(temperature)로 나눌 수 있습니다. 여기서는 0.25입니다. 점수 차이가 커져 가장 큰 점수가 가중치를 거의 모두 차지합니다."],
  lessonSoftmax3: ["How evenly a row is spread is measured by its entropy in bits: 0 if one key has everything, log₂ of the number of keys if all have the same.", "가중치가 얼마나 고르게 퍼졌는지는 엔트로피(비트)로 잽니다. 키 하나가 모두 가지면 0, 모두 같으면 키 개수의 log₂입니다."],
  lessonSoftmaxAsk: ["At which temperature is the entropy of the marked row largest?", "표시된 행의 엔트로피는 어느 온도에서 가장 클까요?"],
  lessonSoftmaxReveal: ["At {best}: {value} bits. A high temperature makes all keys alike.", "{best}에서 {value}비트로 가장 큽니다. 온도가 높으면 모든 키의 가중치가 비슷해집니다."],
  lessonSoftmaxDo: ["Among the edit controls (“edit this head”), move the temperature below 1, and then above 1.", "수정 도구(“이 헤드 수정”)의 온도를 1보다 작게, 그다음 1보다 크게 옮기세요."],
  lessonSoftmaxFell: ["You moved the temperature to {t}; the entropy of the row “{query}” fell from {a} to {b} bits.", "온도를 {t}(으)로 옮기니 “{query}” 행의 엔트로피가 {a}비트에서 {b}비트로 줄었습니다."],
  lessonSoftmaxRose: ["You moved the temperature to {t}; the entropy of the row “{query}” rose from {a} to {b} bits.", "온도를 {t}(으)로 옮기니 “{query}” 행의 엔트로피가 {a}비트에서 {b}비트로 늘었습니다."],

  lessonMask: ["Masks", "마스크"],
  lessonMask1: [
    "Some keys must not be seen. Sentences of one batch are padded to the same length, and a padding mask hides the padding. Here the last {n} keys are hidden as if they were padding.",
    "보아서는 안 되는 키가 있습니다. 한 배치의 문장은 빈자리를 채워 길이를 맞추고, 패딩 마스크(padding mask)가 채운 자리를 가립니다. 여기서는 마지막 키 {n}개를 패딩처럼 가렸습니다.",
  ],
  lessonMask2: ["A decoder writes from left to right. The causal mask lets each token see itself and what came before it.", "디코더는 왼쪽에서 오른쪽으로 생성합니다. 인과 마스크(causal mask)는 각 토큰이 자기 자신과 앞의 토큰만 보게 합니다."],
  lessonMaskAsk: ["Which of these tokens gets the smallest weight from “{query}”?", "“{query}” 토큰이 가장 작은 가중치를 주는 토큰은 무엇일까요?"],
  lessonMaskReveal: ["“{best}”, exactly {value}: it has not been written yet. Its score became −∞ before the softmax, and e to the power of −∞ is 0.", "“{best}”이며 정확히 {value}입니다. 아직 생성하지 않은 토큰입니다. 소프트맥스 전에 점수가 −∞가 되었고, e의 −∞제곱은 0입니다."],
  lessonMask3: [
    "A window lets each token see only its neighbors, here {r} to the left and {r} to the right. That is cheaper for long texts. Any of these masks can be combined.",
    "윈도(window) 마스크는 이웃만 보게 합니다. 여기서는 왼쪽 {r}개와 오른쪽 {r}개입니다. 긴 텍스트에서 계산이 줄어듭니다. 마스크는 서로 결합할 수 있습니다.",
  ],
  lessonMaskDo: ["Among the edit controls (“edit this head”), press “✎ mask”, then click a cell with a circle: its query can no longer see that key.", "수정 도구(“이 헤드 수정”)에서 “✎ 마스크”를 누른 다음 원이 있는 칸을 누르세요. 그 쿼리는 이제 그 키를 볼 수 없습니다."],
  lessonMaskEnd: ["You forbade “{query}” to see “{key}”, which had {w} of its weight. The others share it: “{other}” gained most, from {a} to {b}.", "“{query}” 토큰이 “{key}” 토큰을 보지 못하게 막았습니다. 그 가중치 {w}을(를) 다른 키들이 나누어 가지며, “{other}” 토큰이 {a}에서 {b}(으)로 가장 많이 늘었습니다."],

  lessonHeads: ["Heads", "헤드"],
  lessonHeads1: [
    "One head computes one set of weights, so it looks for one thing at a time. Each of the encoder's {layers} layers has {n} heads with queries, keys and values of their own. The overview has a small picture of each of these {all}: diagonals look at neighbors, columns look at one token from everywhere.",
    "헤드(head) 하나는 한 번에 한 가지만 찾을 수 있습니다. 그래서 인코더의 레이어 {layers}개에는 헤드가 {n}개씩 있고, 저마다 자기 쿼리, 키, 밸류를 가집니다(멀티 헤드, multi-head). 전체 보기에는 이 헤드 {all}개의 작은 그림이 있습니다. 대각선은 이웃을 보는 헤드, 세로줄은 모든 쿼리가 한 토큰을 보는 헤드입니다.",
  ],
  lessonHeads2: ["What does “it” stand for in this sentence? One head of layer {layer} looks from “it” to that word.", "이 문장에서 “it”은 무엇을 가리킬까요? 레이어 {layer}의 한 헤드는 “it”에서 바로 그 단어를 봅니다."],
  lessonHeadsAsk: ["Which head of layer {layer} looks most from “{it}” to the snake (“sn”)?", "레이어 {layer}에서 “{it}” 토큰이 뱀(“sn”)을 가장 많이 보는 헤드는 몇 번일까요?"],
  lessonHeadsReveal: ["It is {best}, with a weight of {value}. The other heads look mostly elsewhere.", "{best}이며 가중치는 {value}입니다. 다른 헤드들은 주로 다른 곳을 봅니다."],
  lessonHeads3: [
    "The picture has one row for each of the {all} heads, all with the query of “{it}”. The context vectors of one layer's heads are concatenated and mixed by one more matrix, {wo}.",
    "그림의 각 행은 헤드 {all}개 중 하나이며 모두 “{it}” 쿼리의 가중치입니다. 한 레이어에 있는 헤드들의 문맥 벡터를 이어 붙여 행렬 {wo}로 섞습니다.",
  ],
  lessonHeadsDo: ["Choose two other heads in the picture: click their rows. Which one is sharp, which one looks everywhere?", "그림에서 다른 헤드 두 개의 행을 눌러 고르세요. 어느 헤드가 한곳에 집중하고, 어느 헤드가 넓게 보나요?"],
  lessonHeadsEnd: ["Of the {n} heads you looked at, {sharp} is the sharpest for “{it}” ({a} bits of entropy), and {wide} looks most widely ({b} bits).", "살펴본 헤드 {n}개 중 “{it}” 토큰에서 {sharp}의 엔트로피가 {a}비트로 가장 작고, {wide}의 엔트로피가 {b}비트로 가장 큽니다."],

  lessonFeedForward: ["Feed-forward and normalization", "피드포워드와 정규화"],
  lessonFeedForward1: [
    "Attention moves information between tokens. After it, a feed-forward network works on each token alone: {d} numbers become {units} hidden units, negative ones are set to 0 (ReLU), and the rest is projected back to {d}.",
    "어텐션은 토큰 사이로 정보를 옮깁니다. 그다음 피드포워드(feed-forward)가 토큰마다 따로 계산합니다. {d}차원 벡터를 은닉 유닛 {units}개로 넓히고, 음수는 0으로 만든 뒤(ReLU) 다시 {d}차원으로 투영합니다.",
  ],
  lessonFeedForward2: ["Only a few units respond to a token: for “{dog}” in layer 0 it is {active} of {units}.", "토큰 하나에 반응하는 유닛은 일부입니다. 레이어 0의 “{dog}” 토큰에서는 {units}개 중 {active}개입니다."],
  lessonFeedForwardAsk: ["At which of these tokens are the most units active?", "다음 토큰 중 활성 유닛이 가장 많은 것은 무엇일까요?"],
  lessonFeedForwardReveal: ["“{best}”: {value} units. Each active unit adds its own vector; the card at the picture lists those that add most.", "“{best}”이며 유닛 {value}개입니다. 활성 유닛은 저마다 자기 벡터를 더합니다. 그림의 카드에는 가장 크게 더하는 유닛이 나와 있습니다."],
  lessonFeedForward3: [
    "Before each sub-layer the vector is normalized (layer normalization): its mean is subtracted and it is divided by its standard deviation; then a learned gain multiplies it and a learned bias is added. For “{dog}” the standard deviation goes from {deviation} to {deviation2}.",
    "서브레이어 앞에서 벡터를 정규화합니다(레이어 정규화, layer normalization). 평균을 빼고 표준편차로 나눈 뒤, 학습된 이득을 곱하고 학습된 편향을 더합니다. “{dog}” 토큰의 표준편차는 {deviation}에서 {deviation2}(으)로 바뀝니다.",
  ],
  lessonFeedForwardDo: ["In the picture, click a feed-forward layer (a gray slab) in the row of any token.", "그림에서 아무 토큰의 행에 있는 피드포워드(회색 블록)를 누르세요."],
  lessonFeedForwardEnd: ["At “{token}” in layer {layer}, {n} of {of} units are active. Unit {unit} adds most, with an activation of {a}.", "레이어 {layer}의 “{token}” 토큰에서 유닛 {of}개 중 {n}개가 활성입니다. 가장 많이 더하는 것은 {unit}번 유닛이고 활성값은 {a}입니다."],

  lessonResidual: ["The residual stream", "잔차 스트림"],
  lessonResidual1: [
    "No sub-layer replaces a token's vector: it adds to it (residual connection). So each token has a rail through all layers, the residual stream. The first attention adds a vector of length {added} to “{tower}”, the last piece of “Tower”, whose vector has length {before}.",
    "서브레이어는 토큰의 벡터를 대체하지 않고 거기에 더합니다(잔차 연결, residual connection). 그래서 토큰마다 모든 레이어를 지나는 레일, 곧 잔차 스트림(residual stream)이 있습니다. 첫 어텐션은 “Tower”의 마지막 서브워드 “{tower}”의 벡터(길이 {before})에 길이 {added}인 벡터를 더합니다.",
  ],
  lessonResidual2: ["What is added can be shorter or longer than what was there.", "더해지는 벡터는 원래 벡터보다 짧을 수도, 길 수도 있습니다."],
  lessonResidualAsk: ["Which sub-layer adds the longest vector to “{tower}”?", "“{tower}” 토큰에 가장 긴 벡터를 더하는 서브레이어는 무엇일까요?"],
  lessonResidualReveal: ["It is {best}, with a vector of length {value}.", "{best}이며 더하는 벡터의 길이는 {value}입니다."],
  lessonResidual3: [
    "In this picture every token is a point, and each head adds an arrow. “Tower” alone could be any tower; attention adds to it what the heads took from the other tokens, “Eiffel” among them.",
    "이 그림에서 토큰은 점이고, 헤드마다 화살표 하나를 더합니다. “Tower”만으로는 어떤 탑인지 알 수 없습니다. 어텐션은 헤드들이 “Eiffel”을 비롯한 다른 토큰에서 가져온 것을 더해 이 점을 옮깁니다.",
  ],
  lessonResidualDo: ["Click another token in the picture, or above it: how far does attention move it?", "그림이나 그 위에서 다른 토큰을 누르세요. 어텐션이 그 토큰을 얼마나 옮기나요?"],
  lessonResidualEnd: ["Attention added a vector of length {x} to “{token}”, whose vector had length {y}: {share}%.", "어텐션은 길이 {y}인 “{token}” 벡터에 길이 {x}인 벡터를 더했습니다. 원래 길이의 {share}%입니다."],

  lessonOutput: ["From the vector to the word", "벡터에서 단어로"],
  lessonOutput1: [
    "At the end of the rail, the dot product of the last vector ({d} numbers) with a vector for every token of the vocabulary gives one number for each: the logits. Softmax turns them into probabilities.",
    "레일의 끝에서 마지막 {d}차원 벡터와 어휘에 있는 모든 토큰 벡터의 내적을 구합니다. 토큰마다 하나씩 나오는 이 수가 로짓(logit)이고, 소프트맥스가 로짓을 확률(probability)로 바꿉니다.",
  ],
  lessonOutput2: ["The translator has written “{written}”. These are its most probable next tokens, in alphabetical order.", "번역 모델은 “{written}”까지 생성했습니다. 확률이 높은 다음 토큰을 알파벳순으로 늘어놓았습니다."],
  lessonOutputAsk: ["Which one is the most probable?", "확률이 가장 높은 것은 무엇일까요?"],
  lessonOutputReveal: ["“{best}”, with a probability of {value}.", "“{best}”이며 확률은 {value}입니다."],
  lessonOutput3: [
    "The same reading can be done before the end: what would the model say if it stopped after each sub-layer (logit lens)? Follow a column from top to bottom: it starts near the token that was read and ends at the next word.",
    "끝이 아닌 곳에서도 같은 방법으로 읽을 수 있습니다. 서브레이어마다 거기서 멈춘다면 모델은 무엇을 예측할까요(로짓 렌즈, logit lens)? 열을 위에서 아래로 따라가 보세요. 처음에는 읽은 토큰에 가깝고 끝에서는 다음 단어가 나옵니다.",
  ],
  lessonOutputDo: ["Click another token of the answer above the picture: how sure was the model there?", "그림 위의 출력에서 다른 토큰을 누르세요. 모델은 그 자리에서 얼마나 확신했나요?"],
  lessonOutputEnd: ["Before writing “{token}”, the model gave it a probability of {p}; the most probable other token, “{other}”, had {p2}. The entropy of all probabilities is {h} bits.", "생성 직전 “{token}” 토큰의 확률은 {p}입니다. 그 밖에 확률이 가장 높은 토큰은 “{other}”이며 {p2}입니다. 전체 확률 분포의 엔트로피는 {h}비트입니다."],

  lessonDecoding: ["Decoding", "디코딩"],
  lessonDecoding1: ["A language model gives probabilities; something must choose. Greedy search always takes the most probable token.", "언어 모델은 확률만 계산하므로 토큰을 고르는 방법이 따로 필요합니다. 탐욕 탐색(greedy search)은 항상 확률이 가장 높은 토큰을 고릅니다."],
  lessonDecodingAsk: ["Which character does the model find most probable after “{text}”?", "“{text}” 다음에 모델이 가장 확률이 높다고 보는 글자는 무엇일까요?"],
  lessonDecodingReveal: ["“{best}”, with a probability of {value}.", "“{best}”이며 확률은 {value}입니다."],
  lessonDecoding2: [
    "Sampling draws a token by its probability. The temperature divides the logits first: below 1 the text gets safer, above 1 more varied, and at 0 it is greedy search.",
    "샘플링(sampling)은 확률에 따라 토큰을 뽑습니다. 먼저 로짓을 온도로 나눕니다. 1보다 낮으면 안전한 텍스트, 높으면 다양한 텍스트가 되고, 0이면 탐욕 탐색과 같습니다.",
  ],
  lessonDecoding3: [
    "A translation should be the most probable one as a whole. Beam search keeps the best few beginnings and continues them all. The score is the log-probability, divided by a length penalty; closer to 0 is better.",
    "번역은 문장 전체의 확률이 높아야 합니다. 빔 서치(beam search)는 가장 좋은 앞부분 몇 개를 남겨 모두 이어 갑니다. 점수는 로그 확률을 길이 페널티로 나눈 값이며 0에 가까울수록 좋습니다.",
  ],
  lessonDecodingDo: ["Choose another temperature in the picture and press “write 40 tokens”.", "그림에서 온도를 바꾸고 “토큰 40개 생성”을 누르세요."],
  lessonDecodingEnd: ["At temperature {t}, “{token}” has a probability of {p} instead of {p1} at 1. The model wrote: “{text}”.", "온도 {t}에서 “{token}”의 확률은 {p}이고, 온도 1에서는 {p1}입니다. 모델이 생성한 텍스트: “{text}”."],

  lessonTraining: ["Training", "학습"],
  lessonTraining1: [
    "At first all these numbers are random. Training shows the model examples and moves every weight a little so that the right token gets more probable. This run was saved at {n} checkpoints, up to step {last}.",
    "처음에는 모든 수가 무작위입니다. 학습(training)은 예시를 보여 주고, 정답 토큰의 확률이 높아지도록 모든 가중치를 조금씩 옮깁니다. 이 학습은 {last}스텝까지 체크포인트 {n}개로 저장되었습니다.",
  ],
  lessonTraining2: ["The loss is the average of −log p of the right tokens.", "손실(loss)은 정답 토큰의 −log p를 평균한 값입니다."],
  lessonTrainingAsk: ["At which step was the training loss smallest?", "학습 손실은 몇 스텝에서 가장 작았을까요?"],
  lessonTrainingReveal: ["At step {best}: {value}. The pattern gets sharp while the loss falls.", "{best}스텝에서 {value}(으)로 가장 작았습니다. 손실이 줄어드는 동안 패턴도 뚜렷해집니다."],
  lessonTrainingDo: ["Move the slider of the checkpoints, or press play: look at three of them at least.", "체크포인트 슬라이더를 옮기거나 재생을 눌러 체크포인트를 세 개 이상 살펴보세요."],
  lessonTrainingEnd: ["You looked at {n} checkpoints. From step {a} to step {b} the training loss went from {x} to {y}.", "체크포인트 {n}개를 살펴보았습니다. {a}스텝에서 {b}스텝까지 학습 손실은 {x}에서 {y}(으)로 바뀌었습니다."],

  lessonVision: ["Images: the vision Transformer", "이미지: 비전 트랜스포머"],
  lessonVision1: [
    "An image is cut into {rows} × {columns} patches of {p} × {p} pixels. Each patch is projected to a vector and is a token like any other; positions are learned. A class token in front of them collects the answer.",
    "이미지를 {rows} × {columns}개의 패치(patch)로 나눕니다. 패치 하나는 {p} × {p}픽셀입니다. 패치를 벡터로 투영하면 다른 토큰과 똑같은 토큰이 되고, 위치 벡터는 학습됩니다. 맨 앞의 클래스 토큰이 답을 모읍니다.",
  ],
  lessonVision2: ["In the last layer the class token looks at the patches. The stronger the color of a patch, the more weight it gets.", "마지막 레이어에서 클래스 토큰이 패치들을 봅니다. 색이 진할수록 가중치가 큽니다."],
  lessonVision3: ["The vector of the class token then becomes a probability for each class.", "그다음 클래스 토큰의 벡터가 클래스별 확률이 됩니다."],
  lessonVisionAsk: ["Which class does the model choose?", "모델은 어떤 클래스를 고를까요?"],
  lessonVisionReveal: ["“{best}”, with a probability of {value}.", "“{best}”이며 확률은 {value}입니다."],
  lessonVisionDo: ["Click a patch of the image: where does it look?", "이미지의 패치를 누르세요. 그 패치는 어디를 보나요?"],
  lessonVisionEnd: ["Patch {query} looks most at {key}, with a weight of {w}. The entropy of its row is {h} bits; equal weights would have {even}.", "패치 {query}에서 가장 많이 보는 곳은 {key}이며 가중치는 {w}입니다. 이 행의 엔트로피는 {h}비트이고, 균등 가중치라면 {even}비트입니다."],

  lessonEfficient: ["Attention that costs less", "계산이 적은 어텐션"],
  lessonEfficient1: [
    "Exact attention compares all pairs: {n} tokens have {cells} scores, and twice the text has four times as many. Efficient forms avoid the table of pairs.",
    "표준(exact) 어텐션은 모든 쌍을 비교합니다. 토큰 {n}개면 점수가 {cells}개이고, 텍스트가 두 배가 되면 네 배로 늘어납니다. 효율적인 방식은 모든 쌍의 표를 만들지 않습니다.",
  ],
  lessonEfficient2: [
    "This model normalizes queries over their dimensions and keys over the positions, and multiplies keys by values first: a table of {d} × {d} = {small} numbers for any length. The weights in the picture are those it implies.",
    "이 모델은 쿼리를 차원 방향으로, 키를 위치 방향으로 정규화하고 키와 밸류를 먼저 곱합니다. 길이와 상관없이 {d} × {d} = {small}개의 수만 있으면 됩니다. 그림의 가중치는 이 계산을 가중치로 나타낸 값입니다.",
  ],
  lessonEfficient3: ["It is another function, not a faster way to the same result. Compare it with exact attention on the same queries and keys.", "같은 결과를 빨리 얻는 방법이 아니라 다른 함수입니다. 같은 쿼리와 키로 계산한 표준 어텐션과 비교하세요."],
  lessonEfficientAsk: ["Which of them spreads the weights of this row more widely (entropy in bits)?", "이 행의 가중치를 더 넓게 퍼뜨리는 쪽은 어느 것일까요(엔트로피, 비트)?"],
  lessonEfficientReveal: ["The answer is “{best}”: {value} bits.", "“{best}”이며 {value}비트입니다."],
  lessonEfficientDo: ["Choose another query: a click in the picture, or a token above it.", "그림이나 그 위의 토큰을 눌러 다른 쿼리를 고르세요."],
  lessonEfficientEnd: ["For “{query}”, {x} of the weight is on other keys than in exact attention; the largest weight is {a} instead of {b}.", "“{query}” 토큰에서 가중치의 {x}이(가) 표준 어텐션과 다른 키에 있습니다. 가장 큰 가중치는 {a}이고 표준 어텐션에서는 {b}입니다."],

  lessonComplexity: ["What it costs", "계산 복잡도"],
  lessonComplexity1: [
    "Why did attention replace the RNN? Table 1 of “Attention Is All You Need” compares layers for n positions of width d. For this sentence and this model, n = {n} and d = {d}.",
    "어텐션은 왜 RNN을 대신했을까요? “Attention Is All You Need”의 표 1은 위치가 n개이고 차원이 d일 때 레이어들을 비교합니다. 이 문장과 이 모델에서는 n = {n}, d = {d}입니다.",
  ],
  lessonComplexity2: ["Self-attention compares n · n pairs of width d. A recurrent layer multiplies n vectors by d × d matrices, one after another. A convolution looks at k neighbors.", "셀프 어텐션은 d차원 벡터 n · n쌍을 비교합니다. 순환 레이어는 벡터 n개에 d × d 행렬을 차례로 곱합니다. 합성곱은 이웃 k개를 봅니다."],
  lessonComplexityAsk: ["Which layer needs the fewest operations for this sentence?", "이 문장에서 연산이 가장 적은 레이어는 무엇일까요?"],
  lessonComplexityReveal: ["The answer is “{best}”: {value} operations. Below n = d, self-attention needs fewer than a recurrent layer.", "{best}이며 연산은 {value}번입니다. n이 d보다 작으면 셀프 어텐션의 연산이 순환 레이어보다 적습니다."],
  lessonComplexity3: [
    "More important: self-attention does everything in one step, and any two positions are one step apart. A recurrent layer takes n steps, and what it read first has the longest way. A window of radius r lies in between.",
    "더 중요한 점이 있습니다. 셀프 어텐션은 한 단계에 모두 계산하고, 어느 두 위치든 한 단계 거리입니다. 순환 레이어는 n단계가 걸리고, 먼저 읽은 것일수록 거쳐야 할 경로가 깁니다. 반경 r의 윈도는 그 사이입니다.",
  ],
  lessonComplexityDo: ["Move the slider of n until self-attention needs more operations than the recurrent layer.", "셀프 어텐션의 연산이 순환 레이어보다 많아질 때까지 n의 슬라이더를 옮기세요."],
  lessonComplexityEnd: ["With n = {n} and d = {d}, self-attention needs {a} operations and the recurrent layer {b}, but {steps} steps one after another.", "n = {n}, d = {d}에서 셀프 어텐션의 연산은 {a}번, 순환 레이어는 {b}번이지만 {steps}단계를 차례로 거쳐야 합니다."],
};
