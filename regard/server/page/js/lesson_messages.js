// The texts of the lessons, in English and in Korean. views/lesson_panel.js fills in the {names}.

export const LESSON_MESSAGES = {
  lessons: ["lessons", "강의"],
  lessonOf: ["lesson {n} of {of}", "강의 {of}개 중 {n}번"],
  lessonDone: ["Done.", "완료했습니다."],
  lessonNext: ["next", "다음"],
  lessonSkip: ["skip", "건너뛰기"],
  lessonBack: ["back", "이전 강의"],
  lessonEnd: ["finish", "마치기"],
  lessonCannot: [
    "This head has no scores for single pairs that you could change here. Continue, or come back with another head.",
    "이 헤드에는 여기서 바꿀 수 있는 쌍별 점수가 없습니다. 다음으로 넘어가거나 다른 헤드를 열고 돌아오세요.",
  ],
  termQuery: ["query", "쿼리(query)"],
  termKey: ["key", "키(key)"],
  termValue: ["value", "밸류(value)"],
  termWeight: ["weight", "가중치(weight)"],
  keyLesson: ["open or close the lessons", "강의 열기 또는 닫기"],
  keyLessonNext: ["previous or next lesson", "이전 또는 다음 강의"],

  lessonAttention: ["What attention is", "어텐션이란"],
  lessonAttentionText: [
    "A model reads a text as tokens. With attention, each token looks at other tokens and takes a share of each; its shares sum to 1. Here every row is a token that looks, and the area of a circle is the share it takes: the {w}.",
    "모델은 텍스트를 토큰(token)으로 읽습니다. 어텐션(attention)에서 각 토큰은 다른 토큰들을 보고 저마다 일정한 비율로 정보를 가져오며, 그 비율의 합은 1입니다. 여기서 각 행은 보는 토큰이고, 원의 넓이가 그 비율인 {w}입니다.",
  ],
  lessonAttentionDo: [
    "Point at a circle, or press {arrows}. The line below the picture says which token looks at which.",
    "원을 가리키거나 {arrows} 키를 누르세요. 어느 토큰이 어느 토큰을 보는지 그림 아래 줄에 나옵니다.",
  ],
  lessonVectors: ["Query, key, value", "쿼리, 키, 밸류"],
  lessonVectorsText: [
    "Every token becomes three vectors. Its {q} says what it looks for, its {k} what it offers, its {v} what it passes on. Query and key decide how much is taken; the value is what is taken.",
    "모든 토큰은 세 벡터로 바뀝니다. {q}는 무엇을 찾는지, {k}는 무엇을 제공하는지, {v}는 무엇을 전달하는지를 담습니다. 쿼리와 키가 얼마나 가져올지를 정하고, 실제로 가져오는 것은 밸류입니다.",
  ],
  lessonVectorsDo: [
    "Click a cell to pin it, or press {enter}. The first step shows the query of its row and the key of its column.",
    "칸을 누르거나 {enter} 키를 눌러 고정하세요. 계산 과정의 첫 단계에 그 행의 쿼리와 그 열의 키가 나옵니다.",
  ],
  lessonScores: ["Scores", "점수"],
  lessonScoresText: [
    "Query and key are compared: multiplied element by element, and the products are added up. The larger this dot product, the better the two match. It is the score of the pair.",
    "쿼리와 키를 비교합니다. 같은 자리의 원소끼리 곱해서 모두 더합니다. 이 내적(dot product)이 클수록 둘이 잘 맞으며, 이 값이 그 쌍의 점수(score)입니다.",
  ],
  lessonScoresDo: [
    "Show the scores instead of the weights: choose “scores” above the picture, or press {s} twice. Rings are negative.",
    "가중치 대신 점수를 표시하세요. 그림 위의 “점수”를 누르거나 {s} 키를 두 번 누르면 됩니다. 고리는 음수입니다.",
  ],
  lessonScale: ["Scaling", "스케일링"],
  lessonScaleText: [
    "The more dimensions two vectors have, the further their dot products spread: by about {root} for {dk} dimensions. With such large scores one key would get almost all the weight. So scores are divided by {root}.",
    "벡터의 차원이 클수록 내적의 값이 넓게 퍼집니다. {dk}차원이면 표준편차가 약 {root}입니다. 점수가 그렇게 커지면 가중치가 키 하나에 몰립니다. 그래서 점수를 {root}로 나눕니다(scaling).",
  ],
  lessonScaleDo: [
    "Clear the checkbox “÷ {root}” below the picture, and compare before and after.",
    "그림 아래 “÷ {root}”의 체크를 끄고 이전과 이후를 비교하세요.",
  ],
  lessonScaleNone: [
    "This model does not divide its scores, so there is nothing to switch off. Open another head with {brackets} and compare the range of its scores.",
    "이 모델은 점수를 나누지 않으므로 끌 것이 없습니다. {brackets} 키로 다른 헤드를 열어 점수의 범위를 비교하세요.",
  ],
  lessonMask: ["Masking", "마스킹"],
  lessonMaskText: [
    "Some keys must not be seen: words that are not written yet (causal mask), or padding. Their score becomes −∞ and their weight 0, and the other keys of the row share the rest.",
    "보아서는 안 되는 키가 있습니다. 아직 생성하지 않은 단어(인과 마스크, causal mask)나 패딩(padding)입니다. 그 점수는 −∞, 가중치는 0이 되고, 같은 행의 다른 키들이 나머지를 나누어 가집니다.",
  ],
  lessonMaskDo: [
    "Press “✎ mask” below the picture, then click a cell with a circle: its query can no longer see that key.",
    "그림 아래 “✎ 마스크”를 누른 다음 원이 있는 칸을 누르세요. 그 쿼리는 이제 그 키를 볼 수 없습니다.",
  ],
  lessonSoftmax: ["Softmax and temperature", "소프트맥스와 온도"],
  lessonSoftmaxText: [
    "Softmax turns the scores of a row into weights: e to the power of each score, divided by the sum of all of them. With a low temperature, one key gets almost all the weight; with a high one, all keys get about the same.",
    "소프트맥스(softmax)는 한 행의 점수를 가중치로 바꿉니다. 점수마다 e의 거듭제곱을 구해 그 합으로 나눕니다. 점수를 낮은 온도(temperature)로 나누면 가중치가 키 하나에 몰리고, 높은 온도로 나누면 모든 키의 가중치가 비슷해집니다.",
  ],
  lessonSoftmaxDo: [
    "Move the temperature below the picture to its left end, then to its right end.",
    "그림 아래의 온도를 왼쪽 끝으로, 그다음 오른쪽 끝으로 옮기세요.",
  ],
  lessonValues: ["Values", "밸류"],
  lessonValuesText: [
    "The output of a head is a weighted sum: each {v} times its weight, all added up. It is called the context vector. A key with a weight of 0 adds nothing, whatever its value is.",
    "헤드의 출력은 밸류의 가중합(weighted sum)입니다. 각 {v}에 가중치를 곱해 모두 더합니다. 이것을 문맥 벡터(context vector)라고 합니다. 가중치가 0인 키는 밸류가 무엇이든 아무것도 더하지 않습니다.",
  ],
  lessonValuesDo: [
    "Choose the largest circle of the marked row, with {left} {right} or a click. Its value counts most in the step “weighted sum of values”.",
    "표시된 행에서 가장 큰 원을 {left} {right} 키나 클릭으로 고르세요. “밸류의 가중합” 단계에서 그 밸류가 가장 크게 더해집니다.",
  ],
  lessonHeads: ["Heads", "헤드"],
  lessonHeadsText: [
    "One head looks for one thing at a time. So a layer has several heads, each with its own queries, keys and values. Their context vectors are concatenated and mixed by one more matrix, W_O.",
    "헤드(head) 하나는 한 번에 한 가지만 찾을 수 있습니다. 그래서 레이어마다 헤드가 여러 개 있고, 저마다 자기 쿼리, 키, 밸류를 가집니다(multi-head). 헤드들의 문맥 벡터를 이어 붙여 행렬 W_O로 섞습니다.",
  ],
  lessonHeadsDo: [
    "Open two other heads: click small pictures in the overview, or press {brackets}. What does each look at?",
    "다른 헤드를 두 개 여세요. 전체 보기의 작은 그림을 누르거나 {brackets} 키를 누르면 됩니다. 각 헤드는 무엇을 보나요?",
  ],
  lessonCross: ["Cross-attention: translating", "크로스 어텐션: 번역"],
  lessonCrossText: [
    "In translation, the encoder reads the source and the decoder writes. The {q} comes from the word being written, {k} and {v} from the source. So every written word can look at the whole source.",
    "번역할 때 인코더(encoder)는 원문을 읽고 디코더(decoder)는 번역문을 생성합니다. {q}는 생성 중인 단어에서, {k}와 {v}는 원문에서 옵니다. 그래서 생성하는 단어마다 원문 전체를 볼 수 있습니다(cross-attention).",
  ],
  lessonCrossDo: [
    "Click a word of the answer above, or press {down}: which source words did this head look at to write it?",
    "위 출력의 단어를 누르거나 {down} 키를 누르세요. 그 단어를 생성할 때 이 헤드는 원문의 어떤 단어를 보았나요?",
  ],
  lessonCrossNone: [
    "This model does not translate: all its tokens look at their own text. Show the head as lines ({two}): queries are on the left, keys on the right. In a translator the right side is the source.",
    "이 모델은 번역하지 않으므로 모든 토큰이 자기 텍스트를 봅니다. 헤드를 선으로 표시하세요({two}). 왼쪽이 쿼리, 오른쪽이 키입니다. 번역 모델에서는 오른쪽이 원문입니다.",
  ],
  lessonWhole: ["The Transformer", "트랜스포머"],
  lessonWholeText: [
    "A Transformer is a stack of such layers. Attention moves information between tokens, a feed-forward network processes each token, and both add to the vector that was there (residual connection). The last layer gives the answer.",
    "트랜스포머(Transformer)는 이런 레이어를 쌓은 것입니다. 어텐션은 토큰 사이로 정보를 옮기고, 피드포워드(feed-forward)는 각 토큰을 처리하며, 둘 다 원래 벡터에 더해집니다(잔차 연결, residual connection). 마지막 레이어에서 출력이 나옵니다.",
  ],
  lessonWholeDo: [
    "Switch this head off and see, at the bottom, how the answer changes. Does the model need this head?",
    "이 헤드를 끄고 아래에서 출력이 어떻게 바뀌는지 보세요. 모델에 이 헤드가 필요한가요?",
  ],
  lessonWholeFile: [
    "Switch this head off: its context vector becomes 0. To see the model's answer without it, run the model: regard serve.",
    "이 헤드를 끄세요. 문맥 벡터가 0이 됩니다. 이 헤드가 없을 때의 출력을 보려면 regard serve로 모델을 실행하세요.",
  ],
};
