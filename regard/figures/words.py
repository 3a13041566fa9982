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
}


def word(key: str, language: str = "en") -> str:
    """What something is called in a language."""
    if language not in LANGUAGES:
        raise InputError(f"language is {language!r}; it can be {' or '.join(LANGUAGES)}.")
    return _WORDS[key][LANGUAGES.index(language)]
