// Messages of comparisons, patches and sweeps, in English and Korean, and sentence pairs.

export const COMPARE_MESSAGES = {
  compare: ["+ compare", "+ 비교"],
  compareHelp: ["put a second sentence, image, model, head or run next to this one", "다른 문장, 이미지, 모델, 헤드, 실행을 나란히 놓고 비교합니다"],
  compareClose: ["end the comparison", "비교 끝내기"],
  compareBar: ["comparison", "비교"],
  compareWith: ["compare with", "비교 대상"],
  compareKind_text: ["another sentence", "다른 문장"],
  compareKind_image: ["another image", "다른 이미지"],
  compareKind_model: ["another model", "다른 모델"],
  compareKind_head: ["another head", "다른 헤드"],
  compareKind_run: ["a checkpoint", "체크포인트"],
  compareKind_edited: ["the edited run", "수정 후"],
  compareText: ["second sentence", "둘째 문장"],
  compareImage: ["second image", "둘째 이미지"],
  compareOwnImage: ["own image", "직접 넣은 이미지"],
  compareFile: ["file", "파일"],
  compareDrawHere: ["Draw the second image", "둘째 이미지를 그리세요"],
  comparePicture: ["on the image", "이미지 위에"],
  compareGrid: ["all queries", "모든 쿼리"],
  comparePairs: ["sentence pairs", "문장 쌍"],
  compareStep: ["step {step}", "스텝 {step}"],
  compareFirst: ["first", "첫째"],
  compareSecond: ["second", "둘째"],
  compareMode: ["how to compare", "비교 방법"],
  compareTwo: ["side by side", "나란히"],
  compareDifference: ["difference", "차이"],
  compareNoDifference: ["The two patterns have different sizes, {a} and {b}: a difference needs the same size.", "두 패턴의 크기가 {a}, {b}(으)로 서로 다릅니다. 차이를 보려면 크기가 같아야 합니다."],
  compareDifferenceTitle: ["second − first", "둘째 − 첫째"],
  compareDifferenceKey: ["area = size of the difference; ● the second is larger, ○ the first", "넓이 = 차이의 크기, ● 둘째가 더 큼, ○ 첫째가 더 큼"],
  compareByPosition: ["Linked by position.", "위치를 기준으로 연결됩니다."],
  compareByToken: ["Linked by token: the lengths differ.", "길이가 달라 토큰을 기준으로 연결됩니다."],
  compareOtherHead: ["The second model does not have this head; {head} is shown.", "둘째 모델에는 이 헤드가 없어 {head} 헤드를 표시합니다."],
  compareNoEdits: ["There are no edits yet, so both sides are the same.", "아직 수정한 것이 없어 양쪽이 같습니다."],
  compareSameText: ["Both sentences are the same: change a word of the second, or choose a pair.", "두 문장이 같습니다. 둘째 문장의 단어를 바꾸거나 문장 쌍을 고르세요."],
  compareSameImage: ["Both images are the same: choose, drop or draw another one.", "두 이미지가 같습니다. 다른 이미지를 선택하거나 끌어다 놓거나 그리세요."],
  compareOtherPatches: ["{first} cuts the image into {a} patches and {second} into {b}, so that positions do not correspond: choose a model with {a}.", "{first} 모델은 이미지를 {a}, {second} 모델은 {b} 패치로 나누므로 위치가 서로 대응하지 않습니다. {a} 패치를 쓰는 모델을 고르세요."],
  compareTooManyPatches: ["These images have too many patches to compare.", "이미지의 패치가 너무 많아 비교할 수 없습니다."],
  compareTooLong: ["These texts are too long to compare.", "텍스트가 너무 길어 비교할 수 없습니다."],
  compareGone: ["What was compared is not available here.", "비교하려던 대상을 여기에서는 쓸 수 없습니다."],
  compareSees: ["At {query}, the first looks most at {key} ({x}), the second at {other} ({y}).", "{query} 토큰에서 첫째는 {key} 토큰({x}), 둘째는 {other} 토큰({y})에 가장 큰 가중치를 줍니다."],
  compareSeesNoMatch: ["Only the first has {query} here; it looks most at {key} ({x}).", "{query} 토큰은 첫째에만 있습니다. {key} 토큰({x})에 가장 큰 가중치를 줍니다."],
  compareTable: ["Weights of the query {query} in both runs", "양쪽에서 쿼리 {query}의 가중치"],
  compareNew: ["only here", "이쪽에만 있음"],
  compareAfterEdits: ["after edits", "수정 후"],
  // patches
  patch: ["carry over", "옮기기"],
  patchHelp: ["Replace a value of one run by that of the other, and see whether the answer follows.", "한쪽의 값을 다른 쪽의 값으로 바꾸고 출력이 따라오는지 확인하세요."],
  patchHead: ["output of head {head}", "헤드 {head}의 출력"],
  patchHeadAt: ["output of head {head} at {token}", "{token} 위치, 헤드 {head}의 출력"],
  patchResidual: ["residual at {token}, layer {layer}", "{token} 위치, 레이어 {layer}의 잔차"],
  patchRow: ["weights of {token}", "{token} 행의 가중치"],
  patchIntoFirst: ["carry it from the second into the first", "둘째의 값을 첫째로 옮기기"],
  patchIntoSecond: ["carry it from the first into the second; the sides change places", "첫째의 값을 둘째로 옮기기(양쪽의 자리가 바뀝니다)"],
  patchNoPosition: ["The other run does not have this position.", "다른 쪽에는 이 위치가 없습니다."],
  patchOtherLength: ["Both runs must have the same number of keys.", "양쪽의 키 개수가 같아야 합니다."],
  patchOtherSize: ["Both models must have this head in the same size.", "두 모델에 이 헤드가 같은 크기로 있어야 합니다."],
  editPatchHead: ["output from “{text}”", "“{text}”의 헤드 출력으로 바꿈"],
  editPatchHeadAt: ["output at {token} from “{text}”", "{token} 위치를 “{text}”의 헤드 출력으로 바꿈"],
  editPatchResidual: ["residual stream at {token} from “{text}”", "{token} 위치를 “{text}”의 잔차 스트림으로 바꿈"],
  editPatchRow: ["weights of {token} from “{text}”", "{token} 행을 “{text}”의 가중치로 바꿈"],
  patchImage: ["the other image", "다른 이미지"],
  // sweeps
  sweep: ["switch every head off in turn", "헤드를 하나씩 모두 꺼 보기"],
  sweepHelp: ["Measures how much less probable the answer becomes without each head.", "헤드를 하나씩 껐을 때 출력의 확률이 얼마나 낮아지는지 잽니다."],
  sweepTitle: ["change in log-probability when one head is off", "헤드 하나를 껐을 때 로그 확률의 변화"],
  sweepProgress: ["{done} of {of} heads", "헤드 {of}개 중 {done}개"],
  sweepStop: ["cancel", "취소"],
  sweepShow: ["effect of each head", "헤드별 효과"],
  sweepHide: ["back to the patterns", "패턴으로 돌아가기"],
  sweepWhole: ["the whole answer", "출력 전체"],
  sweepLess: ["without it, {what} is {share} times as probable", "이 헤드가 없으면 {what}의 확률이 {share}배로 줄어듭니다"],
  sweepMore: ["without it, {what} is {share} times as probable", "이 헤드가 없으면 {what}의 확률이 {share}배로 늘어납니다"],
  sweepOff: ["switch this head off", "이 헤드 끄기"],
  sweepOn: ["switch this head on", "이 헤드 켜기"],
  sweepLegend: ["− less probable without the head, + more probable", "− 헤드가 없으면 확률이 낮아짐, + 높아짐"],
  sweepNoEdits: ["Measured without your edits.", "수정하지 않은 상태에서 잰 값입니다."],
  progress_sweeping: ["switching heads off …", "헤드를 하나씩 끄는 중 …"],
};

const ENGLISH = [
  ["The animal didn't cross the street because it was too tired.", "The animal didn't cross the street because it was too wide."],
  ["The trophy didn't fit into the suitcase because it was too big.", "The trophy didn't fit into the suitcase because it was too small."],
  ["The dog is sleeping in the garden.", "The cat is sleeping in the garden."],
  ["I know that she has read the book.", "I know that she has bought the book."],
  ["He did not come yesterday.", "He did not come today."],
  ["Where is the station?", "Where is the hotel?"],
];
const SOFTWARE = [
  ["Do you want to save the changes?", "Do you want to cancel the changes?"],
  ["Download the file and install it.", "Download the program and install it."],
  ["Open the file that you saved yesterday.", "Delete the file that you saved yesterday."],
];
const MASKED = [["I would like a cup of [MASK].", "I would like a piece of [MASK]."], ["My brother is older [MASK] me.", "My brother is afraid [MASK] me."]];
const DATES = [["Friday, July 4, 2025", "Friday, June 4, 2025"], ["3. Oktober 1990", "3. Oktober 1991"]];
/** @type {Record<string, string[][]>} */
const OF_MODEL = {
  "en-ko": [["Do you know where my keys are?", "Do you know where my books are?"], ...SOFTWARE, ...ENGLISH],
  "english-masked": MASKED,
  "english-efficient": MASKED,
  dates: DATES,
  "dates-transformer": DATES,
  shakespeare: [["What is", "What of"], ["KING HENRY", "LORD HENRY"]],
};

/**
 * Return pairs of sentences one word apart for a model.
 * @param {string} model
 */
export function sentencePairs(model) {
  return OF_MODEL[model] ?? ENGLISH;
}
