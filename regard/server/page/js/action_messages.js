// Texts of what a reader keeps, shares and presents, in English and in Korean.

export const ACTION_MESSAGES = {
  // heat maps
  zoom: ["zoom", "확대와 축소"],
  zoomIn: ["zoom in (+)", "확대 (+)"],
  zoomOut: ["zoom out (−)", "축소 (−)"],
  zoomFit: ["show everything (0)", "전체 보기 (0)"],
  keyZoom: ["zoom a heat map in, out, to everything", "히트맵 확대, 축소, 전체 보기"],
  halvesHelp: ["each cell has two halves: upper left before, lower right after the edits", "칸의 왼쪽 위 절반이 이전, 오른쪽 아래 절반이 이후입니다"],
  differenceHelp: ["blue cells gained weight, orange cells lost it; zoom in to see both values", "파란 칸은 가중치가 늘고 주황 칸은 줄었습니다. 확대하면 두 값이 모두 보입니다"],
  differenceMost: ["change of the weight", "가중치의 변화"],
  // choices that stay, and why they cannot
  restingPosition: ["position {position} is not in this text", "이 텍스트에는 {position}번 위치가 없습니다"],
  restingTokens: ["this input has no such tokens", "이 입력에는 바꿀 토큰이 없습니다"],
  restingSite: ["this model has no {site}", "이 모델에는 {site}이(가) 없습니다"],
  restingHead: ["this layer has no head {head}", "이 레이어에는 {head}번 헤드가 없습니다"],
  pinAuto: ["auto", "자동"],
  pinKept: ["kept", "유지"],
  pinLost: ["L{layer}H{head} not here", "L{layer}H{head} 없음"],
  pinAutoHelp: ["The page chooses the most readable head for each text. Click to keep this head.", "텍스트마다 가장 읽기 쉬운 헤드를 고릅니다. 누르면 이 헤드를 유지합니다."],
  pinKeptHelp: ["You chose this head; it stays for other texts. Click to let the page choose.", "선택한 헤드를 다른 텍스트에서도 유지합니다. 누르면 헤드를 자동으로 고릅니다."],
  pinLostHelp: ["This model has no {site}, head {head}. It opens again with a model that has it. Click to let the page choose.", "이 모델에는 {site}의 {head}번 헤드가 없습니다. 그 헤드가 있는 모델에서 다시 열립니다. 누르면 헤드를 자동으로 고릅니다."],
  // share and present
  share: ["share", "공유"],
  shareHtml: ["this view as one HTML file", "이 화면을 HTML 파일 하나로 저장"],
  sharePdf: ["save as PDF", "PDF로 저장"],
  sharePython: ["copy as Python", "파이썬 코드 복사"],
  shareFrame: ["copy as a frame for your page", "내 페이지에 넣을 iframe 코드 복사"],
  present: ["present on the full screen", "전체 화면으로 발표하기"],
  presentKeys: ["← → head or step · ↑ ↓ layer · Esc ends", "← → 헤드 또는 단계 · ↑ ↓ 레이어 · Esc로 종료"],
  // command palette
  palette: ["find a head, token, view, lesson, model or example", "헤드, 토큰, 보기, 레슨, 모델, 예시 찾기"],
  paletteHint: ["L5H1, a word, a view, a lesson …", "L5H1, 단어, 보기, 레슨 …"],
  paletteNone: ["nothing found", "찾은 것이 없습니다"],
  paletteCount: ["{n} found", "{n}개를 찾았습니다"],
  paletteHead: ["head", "헤드"],
  paletteToken: ["token", "토큰"],
  paletteView: ["view", "보기"],
  paletteLesson: ["lesson", "레슨"],
  palettePage: ["page", "페이지"],
  // images of the reader
  draw: ["draw", "그리기"],
  drawHere: ["Draw here", "여기에 그리세요"],
  drawClear: ["clear", "지우기"],
  imageShown: ["the image that the model reads", "모델이 읽는 이미지"],
};
