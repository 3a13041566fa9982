// The server's errors in Korean, by their codes. In English the page shows the server's own message.
// The codes and parameters are those of regard/server/error_codes.py, which a test compares.

/** @type {Record<string, string>} */
export const ERROR_MESSAGES = {
  invalid_json: "요청 본문이 올바른 JSON이 아닙니다({problem}).",
  not_an_object: "요청 본문은 application/json으로 보낸 JSON 객체여야 합니다.",
  missing_field: "요청에 {field} 필드가 필요합니다.",
  unknown_field: "요청에 {field} 필드는 쓸 수 없습니다.",
  invalid_field: "{field} 필드에 {value} 값은 쓸 수 없습니다({problem}).",
  too_long: "{field} 값은 {limit}자를 넘을 수 없습니다. 줄여 주세요.",
  wrong_host: "이 서버는 {host} 주소로 응답하지 않습니다. {allowed} 주소를 쓰거나, --allow-host를 붙여 서버를 시작하세요.",
  wrong_token: "이 서버에는 토큰이 필요합니다. 서버의 터미널에 표시된 주소를 여세요.",
  wrong_origin: "다른 서버의 페이지에서 보낸 요청은 받지 않습니다.",
  not_found: "{path}에는 아무것도 없습니다.",
  unknown_trace: "이 추적 결과는 더 이상 저장되어 있지 않습니다. 다시 실행하세요.",
  method_not_allowed: "{path}에는 {method} 요청을 보낼 수 없습니다.",
  upload_gone: "이 이미지는 더 이상 저장되어 있지 않습니다. 다시 올려 주세요.",
  body_too_large: "요청이 {limit}바이트보다 큽니다. 더 작게 나누어 보내세요.",
  body_too_slow: "{limit}초 동안 데이터가 오지 않았습니다. 요청을 다시 보내세요.",
  busy: "서버가 너무 많은 요청을 처리하고 있습니다. 잠시 후 다시 시도하세요.",
  stopping: "서버가 종료되는 중입니다. 서버를 다시 시작한 뒤 요청을 다시 보내세요.",
  too_slow: "요청을 처리하는 데 {limit}초가 넘게 걸렸습니다. 한 번에 더 적은 양을 보내세요.",
  queue_full: "이 모델을 기다리는 요청이 너무 많습니다. 잠시 후 다시 시도하세요.",
  canceled: "요청이 취소되었습니다.",
  internal: "내부 오류가 발생했습니다. 서버를 실행한 터미널에서 내용을 확인하세요.",
  no_models: "이 서버에는 {name} 모델이 없습니다. regard serve FOLDER로 시작하세요.",
  unknown_model: "{name} 모델이 없습니다({hint}).",
  unknown_run: "이 서버에는 {name} 학습 실행이 없습니다({hint}).",
  unknown_step: "{name} 학습 실행에는 {step}스텝의 체크포인트가 없습니다({hint}).",
  unknown_text: "{name} 학습 실행에는 {text}번 텍스트가 없습니다. 텍스트는 {count}개이고 0부터 셉니다.",
  unknown_example: "{name} 모델에는 {number}번 예시가 없습니다. 예시는 {count}개이고 0부터 셉니다.",
  text_or_image: "텍스트와 이미지 중 하나만 입력하세요.",
  needs_text: "{name} 모델은 텍스트를 읽습니다. 이미지 대신 텍스트를 입력하세요.",
  needs_image: "{name} 모델은 이미지를 읽습니다. 텍스트 대신 이미지를 입력하세요.",
  no_target: "{name} 모델은 텍스트를 생성하지 않습니다. 타깃을 빼세요.",
  unknown_part: "{part}번 부분이 없습니다. 텍스트는 {count}개 부분이고 0부터 셉니다.",
  no_tokenizer: "이 모델에는 토크나이저가 없습니다. 텍스트 대신 토큰 번호를 입력하세요.",
  image_has_no_tokens: "이미지에는 바꿀 토큰이 없습니다.",
  invalid_base64: "이미지가 올바른 base64가 아닙니다. PNG나 JPEG 파일을 base64로 보내세요.",
  invalid_image: "이미지를 읽을 수 없습니다. PNG나 JPEG 파일을 보내세요.",
  image_too_large: "이미지가 {width} × {height} 픽셀입니다. 전체 {limit}픽셀 이하로 보내세요.",
  too_many_tokens: "텍스트가 {count}토큰입니다. 최대 {limit}토큰까지 추적할 수 있으니 줄여 주세요.",
  out_of_memory: "{count}토큰을 추적하려면 메모리 {needed} GB가 필요하지만 {free} GB만 남아 있습니다. 텍스트를 줄여 주세요.",
  unknown_position: "{side} 쪽에는 {position}번 토큰이 없습니다. 토큰은 {count}개이고 0부터 셉니다.",
  not_one_token: "이 모델은 {token} 텍스트를 토큰 {count}개로 나눕니다({tokens}). 토큰 하나만 입력하세요.",
  unknown_head: "{site}에는 {head}번 헤드가 없습니다. 헤드는 {count}개이고 0부터 셉니다.",
  invalid_range: "{axis} 범위 {start}–{stop} 가운데 일부가 허용 범위(0–{count}) 밖에 있습니다.",
  table_too_long: "{site} 어텐션은 너무 길어 {rows} × {columns} 가중치를 한 번에 보낼 수 없습니다. 나누어 요청하세요.",
  comparison_too_long: "{site} 어텐션은 너무 길어 표준 어텐션과 비교할 수 없습니다. 텍스트를 줄여 주세요.",
  not_a_translation: "번역 모델에만 다른 단어 후보가 있습니다.",
  not_a_language_model: "언어 모델만 다음 토큰을 예측합니다.",
  writes_no_text: "번역 모델과 언어 모델만 텍스트를 생성합니다.",
  no_image: "이 추적 결과에는 이미지가 없습니다.",
  edit_unmatched: "{edit} 수정을 적용할 곳이 없습니다. {path} 값이 계산되지 않았습니다({hint}).",
  edit_place_missing: "{edit} 수정이 가리키는 자리가 없습니다({what}).",
  edit_position_missing: "{edit} 수정은 {what} {position}번을 가리키지만 {site}에는 {count}개만 있습니다.",
  mean_not_known: "{site} 어텐션은 쿼리를 하나씩 계산하므로 모든 쿼리의 평균을 아직 알 수 없습니다. 평균 대신 헤드를 끄세요.",
  not_in_trace: "추적 결과에 {path} {what} 항목이 없습니다({hint}).",
  no_such_position: "{site}에는 {what} {position}번이 없습니다. {count}개가 있고 0부터 {last}까지입니다.",
  no_pairwise_values: "{site}에서는 {form} 어텐션을 쓰므로 쌍별 {what} 값을 계산하지 않습니다. 가중치를 보세요.",
  patch_path_unknown: "다른 실행에는 {path} 값이 없습니다({hint}).",
  patch_position_missing: "{edit} 수정은 {position}번 위치를 가리키지만 다른 실행의 {site}에는 {count}개만 있습니다.",
  patch_shape: "{edit} 수정의 값은 크기가 {given}이지만 바꿀 값의 크기는 {shape}입니다. 위치 하나를 고르거나 길이가 같은 텍스트를 쓰세요.",
  patch_axes: "{path}의 크기가 다른 실행에서는 {given}, 이 실행에서는 {shape}입니다. 같은 텍스트로 실행하세요.",
  empty_text: "입력에 토큰이 없습니다. 비어 있지 않은 텍스트를 입력하세요.",
  no_known_tokens: "모델이 아는 토큰이 하나도 없어 추적할 수 없습니다. 다른 텍스트를 입력하세요.",
  unknown_words: "모델에 {text}의 토큰이 없습니다. 다른 단어를 쓰세요.",
  too_many_positions: "텍스트가 {count}토큰이지만 이 모델은 위치를 {last}개까지만 학습했습니다. 텍스트를 줄여 주세요.",
  text_capacity: "토큰 {given}개를 생성할 위치가 모자랍니다. 입력이 {count}토큰이라 {last}개만 더 생성할 수 있습니다. 더 적게 생성하거나 입력을 줄여 주세요.",
  no_such_prediction: "{position}번 위치가 없습니다. 모델은 위치 {count}개에서 예측하고 0부터 {last}까지입니다.",
  nothing_predicted: "모델이 이 입력에서 예측하는 것이 없습니다. [MASK]가 있는 텍스트를 입력하세요.",
  no_residual_stream: "{model} 모델은 어텐션만 보이고 잔차 스트림은 찾을 수 없습니다. regard import로 가져온 모델을 쓰세요.",
  predicts_nothing: "이 모델은 토큰도 클래스도 예측하지 않으므로 잔차 스트림에서 읽을 것이 없습니다.",
  recurrent_model: "순환 모델에는 읽을 잔차 스트림이 없습니다. 다른 종류의 모델을 쓰세요.",
  trace_without_model: "이 추적 결과에는 모델이 없습니다. 텍스트를 다시 실행하세요.",
  rollout_too_long: "{site} 어텐션의 길이는 {count}토큰입니다. 롤아웃은 {last}토큰까지 계산하니 텍스트를 줄여 주세요.",
  value_not_finite: "{path} 값이 {index}에서 {value}입니다. 유한하지 않은 첫 값이니 모델의 가중치와 입력을 확인하세요.",
  invalid_input: "입력을 쓸 수 없습니다({message}).",
  unknown_name: "그런 이름이 없습니다({message}).",
  invalid_shape: "텐서의 크기가 맞지 않습니다({message}).",
  invalid_mask: "마스크를 쓸 수 없습니다({message}).",
  not_finite: "유한한 수가 아닙니다({message}).",
  file_error: "파일을 읽거나 쓸 수 없습니다({message}).",
  missing_extra: "필요한 패키지가 설치되어 있지 않습니다({message}).",
};

/** What is wrong with a field, by the kind of pydantic's error or by its first word. */
/** @type {Record<string, string>} */
const PROBLEMS = {
  greater_than_equal: "{limit} 이상이어야 합니다",
  greater_than: "{limit}보다 커야 합니다",
  less_than_equal: "{limit} 이하여야 합니다",
  less_than: "{limit}보다 작아야 합니다",
  literal_error: "{limit} 중 하나여야 합니다",
  string: "문자열이어야 합니다",
  int: "정수여야 합니다",
  float: "수여야 합니다",
  bool: "참 또는 거짓이어야 합니다",
  list: "목록이어야 합니다",
  dict: "JSON 객체여야 합니다",
};

/**
 * Return the parameters of an error with their English parts in Korean.
 * @param {Record<string, any>} params
 * @returns {Record<string, any>}
 */
export function koreanParams(params) {
  const kind = String(params.kind ?? "");
  const problem = (PROBLEMS[kind] ?? PROBLEMS[kind.split("_")[0]])?.replace("{limit}", String(params.limit).replace(/ or /g, ", "));
  const hint = String(params.hint ?? "").replace(/^the nearest (is|are) /, "비슷한 이름: ").replace(/^there are none$/, "하나도 없습니다").replace(/^it has none yet$/, "아직 없습니다");
  const what = { query: "쿼리", key: "키", position: "위치", site: "어텐션", value: "값", stream: "스트림", scores: "점수", masked: "점수", compared: "점수" }[String(params.what)];
  const side = { source: "입력", target: "타깃", output: "출력", answer: "출력" }[String(params.side)];
  return { ...params, ...(problem ? { problem } : {}), ...(hint ? { hint } : {}), ...(side ? { side } : {}), ...(what ? { what } : {}) };
}
