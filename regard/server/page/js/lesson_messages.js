// The words of the lessons, in English and in Korean. {names} are filled in by views/lessons.js.

export const LESSON_WORDS = {
  lessons: ["lessons", "강의"],
  lessonOf: ["lesson {n} of {of}", "강의 {of}개 중 {n}"],
  lessonDone: ["Done.", "해냈습니다."],
  lessonNext: ["next", "다음"],
  lessonSkip: ["skip", "건너뛰기"],
  lessonBack: ["back", "이전 강의"],
  lessonEnd: ["finish", "마치기"],
  lessonCannot: [
    "This head has no scores of single pairs that could be changed here. Go on, or come back with another head.",
    "이 헤드에는 여기서 바꿀 수 있는 쌍별 점수가 없습니다. 다음으로 가거나 다른 헤드를 열고 돌아와 주십시오.",
  ],
  termQuery: ["query", "쿼리(query)"],
  termKey: ["key", "키(key)"],
  termValue: ["value", "밸류(value)"],
  termWeight: ["weight", "가중치(weight)"],
  keyLesson: ["lessons, on and off", "강의 열고 닫기"],
  keyLessonNext: ["previous or next lesson", "이전 또는 다음 강의"],

  lessonAttention: ["What attention is", "어텐션이란"],
  lessonAttentionText: [
    "A model reads a text as tokens. With attention, each token looks at tokens and takes a share of each; its shares sum to 1. Here every row is a token that looks, and the area of a circle is its share: the {w}.",
    "모델은 텍스트를 토큰(token)으로 읽습니다. 어텐션(attention)에서 각 토큰은 다른 토큰들을 보고 저마다 일정한 몫을 가져오며, 그 몫의 합은 1입니다. 여기서 각 행은 보는 토큰이고, 원의 넓이가 그 몫인 {w}입니다.",
  ],
  lessonAttentionDo: [
    "Point at a circle, or press {arrows}. The line below the picture says who looks at whom.",
    "원을 가리키거나 {arrows} 키를 눌러 보십시오. 그림 아래 줄에 누가 누구를 보는지 나옵니다.",
  ],
  lessonVectors: ["Query, key, value", "쿼리, 키, 밸류"],
  lessonVectorsText: [
    "Every token becomes three vectors. Its {q} says what it looks for, its {k} what it offers, its {v} what it hands over. Query and key decide how much is taken; the value is what is taken.",
    "모든 토큰은 세 벡터가 됩니다. {q}는 무엇을 찾는지, {k}는 무엇을 내세우는지, {v}는 무엇을 건네는지를 담습니다. 쿼리와 키가 얼마나 가져올지를 정하고, 가져오는 것은 밸류입니다.",
  ],
  lessonVectorsDo: [
    "Click a cell to pin it, or press {enter}. The first of the steps shows the query of its row and the key of its column.",
    "칸을 누르거나 {enter} 키를 눌러 고정해 보십시오. 계산 과정의 첫 단계에 그 행의 쿼리와 그 열의 키가 나옵니다.",
  ],
  lessonScores: ["Scores", "점수"],
  lessonScoresText: [
    "Query and key are compared: multiplied number by number, and the products are summed. The larger this dot product, the better the two match. It is the score of the pair.",
    "쿼리와 키를 비교합니다. 같은 자리의 수끼리 곱해서 모두 더합니다. 이 내적(dot product)이 클수록 둘이 잘 맞으며, 이것이 그 쌍의 점수(score)입니다.",
  ],
  lessonScoresDo: [
    "Show the scores in place of the weights: choose “scores” above the picture, or press {s} twice. Rings are negative.",
    "가중치 대신 점수를 표시해 보십시오. 그림 위의 “점수”를 누르거나 {s} 키를 두 번 누릅니다. 고리는 음수입니다.",
  ],
  lessonScale: ["Scaling", "스케일링"],
  lessonScaleText: [
    "The more numbers two vectors have, the further their dot products spread: about {root} for {dk} numbers. Such large scores would make one key win and the rest count for nothing. So scores are divided by {root}.",
    "벡터의 수가 많을수록 내적의 폭이 커집니다. 수가 {dk}개이면 약 {root}배입니다. 점수가 그렇게 커지면 키 하나만 남고 나머지는 무시됩니다. 그래서 점수를 {root}로 나눕니다(scaling).",
  ],
  lessonScaleDo: [
    "Take the tick off “÷ {root}” below the picture, and compare before and after.",
    "그림 아래 “÷ {root}”의 체크를 끄고 이전과 이후를 비교해 보십시오.",
  ],
  lessonScaleNone: [
    "This model does not divide its scores, so there is nothing to switch off. Open another head with {brackets} and compare the range of its scores.",
    "이 모델은 점수를 나누지 않으므로 끌 것이 없습니다. {brackets} 키로 다른 헤드를 열어 점수의 범위를 비교해 보십시오.",
  ],
  lessonMask: ["Masking", "마스킹"],
  lessonMaskText: [
    "Some keys must not be seen: words that are not written yet (causal mask), or padding. Their score becomes −∞ and their weight 0, and the other keys of the row share what is set free.",
    "보아서는 안 되는 키가 있습니다. 아직 쓰지 않은 단어(인과 마스크, causal mask)나 패딩(padding)입니다. 그 점수는 −∞, 가중치는 0이 되고, 같은 행의 다른 키들이 남는 몫을 나눕니다.",
  ],
  lessonMaskDo: [
    "Press “✎ mask” below the picture, then click a cell with a circle: its query may no longer see that key.",
    "그림 아래 “✎ 마스크”를 누른 다음 원이 있는 칸을 눌러 보십시오. 그 쿼리는 이제 그 키를 볼 수 없습니다.",
  ],
  lessonSoftmax: ["Softmax and temperature", "소프트맥스와 온도"],
  lessonSoftmaxText: [
    "Softmax turns the scores of a row into weights: e to the power of each score, divided by the sum of all. Scores divided by a low temperature make one key win; a high temperature makes all keys alike.",
    "소프트맥스(softmax)는 한 행의 점수를 가중치로 바꿉니다. 점수마다 e의 거듭제곱을 구해 그 합으로 나눕니다. 점수를 낮은 온도(temperature)로 나누면 키 하나가 이기고, 높은 온도로 나누면 모든 키가 비슷해집니다.",
  ],
  lessonSoftmaxDo: [
    "Move the temperature below the picture to its left end, then to its right end.",
    "그림 아래의 온도를 왼쪽 끝으로, 그다음 오른쪽 끝으로 옮겨 보십시오.",
  ],
  lessonValues: ["Values", "밸류"],
  lessonValuesText: [
    "What a head gives is a mixture: each {v} times its weight, all added up. This weighted sum is the context. A key with a weight of 0 adds nothing, however well known its value is.",
    "헤드가 내는 것은 혼합입니다. 각 {v}에 가중치를 곱해 모두 더합니다. 이 가중합(weighted sum)이 문맥 벡터(context)입니다. 가중치가 0인 키는 밸류가 무엇이든 아무것도 더하지 않습니다.",
  ],
  lessonValuesDo: [
    "Choose the largest circle of the marked row, with {left} {right} or a click. Its value counts most in the step “mix the values”.",
    "표시된 행에서 가장 큰 원을 {left} {right} 키나 클릭으로 골라 보십시오. “밸류의 가중합” 단계에서 그 밸류가 가장 크게 더해집니다.",
  ],
  lessonHeads: ["Heads", "헤드"],
  lessonHeadsText: [
    "One head can look for one thing at a time. So a layer has several heads, each with queries, keys and values of its own. Their contexts are joined and mixed by one more matrix, W_O.",
    "헤드(head) 하나는 한 번에 한 가지만 찾을 수 있습니다. 그래서 층마다 헤드가 여러 개 있고, 저마다 자기 쿼리, 키, 밸류를 가집니다(multi-head). 헤드들의 문맥 벡터를 이어 붙여 행렬 W_O로 섞습니다.",
  ],
  lessonHeadsDo: [
    "Open two other heads: click small pictures in the overview, or press {brackets}. What does each look at?",
    "다른 헤드를 두 개 열어 보십시오. 전체 보기의 작은 그림을 누르거나 {brackets} 키를 누릅니다. 저마다 무엇을 봅니까?",
  ],
  lessonCross: ["Cross-attention: translating", "크로스 어텐션: 번역"],
  lessonCrossText: [
    "While translating, the decoder writes and the encoder has read. The {q} comes from the word being written, {k} and {v} from the source. So every written word can look at the whole source.",
    "번역할 때 인코더(encoder)는 원문을 읽고 디코더(decoder)는 씁니다. {q}는 쓰고 있는 단어에서, {k}와 {v}는 원문에서 옵니다. 그래서 쓰는 단어마다 원문 전체를 볼 수 있습니다(cross-attention).",
  ],
  lessonCrossDo: [
    "Click a word of the answer above, or press {down}: which words of the source did this head look at to write it?",
    "위 출력의 단어를 누르거나 {down} 키를 눌러 보십시오. 그 단어를 쓸 때 이 헤드는 원문의 어떤 단어를 보았습니까?",
  ],
  lessonCrossNone: [
    "This model does not translate: all its tokens look at their own text. Show the head as lines ({two}): who asks stands on the left, who answers on the right. In a translator the right side is the source.",
    "이 모델은 번역하지 않으므로 모든 토큰이 자기 텍스트를 봅니다. 헤드를 선으로 표시해 보십시오({two}). 왼쪽이 묻는 쪽, 오른쪽이 답하는 쪽입니다. 번역 모델에서는 오른쪽이 원문입니다.",
  ],
  lessonWhole: ["The Transformer", "트랜스포머"],
  lessonWholeText: [
    "A Transformer is a stack of such layers. Attention moves information between tokens, a feed-forward network works on each token, and both add to what was there (residual connection). The last layer gives the answer.",
    "트랜스포머(Transformer)는 이런 층을 쌓은 것입니다. 어텐션은 토큰 사이로 정보를 옮기고, 피드포워드(feed-forward)는 각 토큰을 처리하며, 둘 다 원래 있던 벡터에 더해집니다(잔차 연결, residual connection). 마지막 층에서 출력이 나옵니다.",
  ],
  lessonWholeDo: [
    "Switch this head off and see, at the bottom, what becomes of the answer. Does the model need this head?",
    "이 헤드를 끄고 아래에서 출력이 어떻게 되는지 보십시오. 모델에 이 헤드가 필요합니까?",
  ],
  lessonWholeFile: [
    "Switch this head off: its context becomes 0. What the model answers without it needs the model: regard serve.",
    "이 헤드를 꺼 보십시오. 문맥 벡터가 0이 됩니다. 이 헤드 없이 모델이 무엇을 내는지 보려면 모델이 필요합니다: regard serve.",
  ],
};
