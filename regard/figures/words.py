"""The words of pictures and worked examples, in English and Korean."""

from regard.errors import InputError

LANGUAGES = ("en", "ko")

_WORDS = {
    "x": ("inputs, one row for each word", "입력: 단어마다 한 행"),
    "x_key": ("inputs of keys and values", "키와 밸류의 입력"),
    "w_query": ("query weights", "쿼리 가중치 행렬"),
    "w_key": ("key weights", "키 가중치 행렬"),
    "w_value": ("value weights", "밸류 가중치 행렬"),
    "query": ("queries: what each word asks", "쿼리: 각 단어가 묻는 것"),
    "key": ("keys: what each word answers to", "키: 각 단어가 응답하는 것"),
    "value": ("values: what each word has to give", "밸류: 각 단어가 주는 것"),
    "compared": ("similarities of each query with each key", "각 쿼리와 각 키의 유사도"),
    "scores": ("scores: similarities, scaled", "점수: 스케일링된 유사도"),
    "masked": ("allowed scores", "마스크를 적용한 점수"),
    "weights": ("weights: each row sums to 1", "가중치: 각 행의 합은 1"),
    "context": ("output: weighted sums of the values", "출력: 밸류의 가중합"),
    "worked example": ("A worked example of attention", "숫자로 따라가는 어텐션"),
    "similarity": ("similarity", "유사도"),
    "mask": ("mask", "마스크"),
    "temperature": ("temperature", "온도"),
    "row sum": ("sum", "합"),
    "evaluation": ("Evaluation", "평가"),
    "sentences": ("sentences", "문장"),
    "bleu by length": ("BLEU by length of the source, in words", "원문 길이(단어 수)별 BLEU"),
    "words by references": (
        "F1 of words by how often they are in the references",
        "참조 번역에 나온 횟수별 단어 F1",
    ),
    "words by training": (
        "F1 of words by how often they are in the training data",
        "학습 데이터에 나온 횟수별 단어 F1",
    ),
    "alignment errors": ("Alignment error rate of each head", "헤드별 정렬 오류율"),
    "read after": ("read after a word is written", "단어를 쓴 뒤에 본 것"),
    "read before": ("read to write a word", "단어를 쓰려고 본 것"),
    "head": ("head", "헤드"),
    "chosen": ("outlined: chosen", "테두리: 선택됨"),
    "source": ("source", "원문"),
    "reference": ("reference", "참조 번역"),
    "differences": (
        "Underlined: not in the reference. Struck through: in the reference, but missing.",
        "밑줄: 참조 번역에 없음. 취소선: 참조 번역에 있으나 빠짐.",
    ),
    "widest first": ("The sentences that differ most come first.", "차이가 큰 문장부터 나옵니다."),
    "worst first": ("The worst sentences come first.", "점수가 낮은 문장부터 나옵니다."),
    "hide equal": ("hide sentences that both translate alike", "번역이 같은 문장 숨기기"),
    "p-value": ("p", "p값"),
    "exact match": ("exact match", "완전 일치"),
    "perplexity": ("perplexity", "퍼플렉서티"),
    "interval": ("lines: 95 % interval", "선: 95 % 구간"),
    "curves": ("Learning curves", "학습 곡선"),
    "training": ("training", "학습"),
    "validation": ("validation", "검증"),
    "no validation": ("not validated yet", "아직 검증하지 않음"),
    "loss": ("loss", "손실"),
    "loss of a target": ("loss (−log p of a target)", "손실 (목표 하나의 −log p)"),
    "score": ("score", "점수"),
    "accuracy": ("accuracy", "정확도"),
    "lr": ("learning rate", "학습률"),
    "speed": ("targets per second (tokens/s)", "초당 목표 토큰 수 (tokens/s)"),
    "logarithmic": ("logarithmic", "로그 눈금"),
    "step": ("step", "스텝"),
    "best": ("best", "최고"),
}


def word(key: str, language: str = "en") -> str:
    """What something is called in a language."""
    if language not in LANGUAGES:
        raise InputError(f"language is {language!r}; it can be {' or '.join(LANGUAGES)}.")
    return _WORDS[key][LANGUAGES.index(language)]
