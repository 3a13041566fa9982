"""The words of figures, in English and Korean."""

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


_CAPTIONS = {
    "asks": ("queries: who asks", "쿼리: 묻는 쪽"),
    "asks writing": ("queries: the token being written", "쿼리: 쓰고 있는 토큰"),
    "answers": ("keys: who answers", "키: 답하는 쪽"),
    "area is weight": ("area is the weight", "넓이 = 가중치"),
    "weight": ("weight", "가중치"),
    "numbers": ("numbers of the vectors", "벡터의 값"),
    "thicker lines": ("Thicker lines are larger weights.", "선이 굵을수록 가중치가 큽니다."),
    "written words": ("words written", "쓴 단어"),
    "read words": ("words read", "읽은 단어"),
    "alignment": ("translation alignment", "번역 정렬"),
    "weights between words": (
        "Weights of a source word's tokens are added, those of a target word's averaged.",
        "원문 단어는 토큰 가중치의 합, 번역 단어는 토큰 가중치의 평균입니다.",
    ),
    "keys": ("keys", "키"),
    "queries": ("queries", "쿼리"),
    "values": ("values", "밸류"),
    "weighted sum": ("weighted sum of the values: context", "밸류의 가중합: 문맥 벡터"),
    "steps of a query": (
        "One query compared with every key, scaled, masked, normalized, and what it collects.",
        "쿼리 하나를 모든 키와 비교하고, 나누고, 가리고, 정규화하여 밸류를 모으는 과정입니다.",
    ),
    "masks": (
        "Masks: which query may see which key",
        "마스크: 어떤 쿼리가 어떤 키를 볼 수 있는가",
    ),
    "masks legend": (
        "Filled: may see. Crossed out: forbidden, its score becomes −∞.",
        "채운 칸: 볼 수 있음. 빗금 칸: 막힘, 점수가 −∞가 됩니다.",
    ),
    "may see": ("may see", "볼 수 있음"),
    "forbidden": ("forbidden", "막힘"),
    "causal mask": ("causal mask", "인과 마스크"),
    "padding mask": ("padding mask", "패딩 마스크"),
    "window mask": ("window mask", "윈도 마스크"),
    "causal and padding": ("both at once", "두 마스크를 함께"),
    "positions": ("Sinusoidal positional encoding", "사인·코사인 위치 인코딩"),
    "position": ("position", "위치"),
    "schedule": ("Learning rate with warm-up", "워밍업이 있는 학습률"),
    "training step": ("training step", "학습 스텝"),
    "learning rate": ("learning rate", "학습률"),
    "complexity": (
        "What attention costs with the length of a text",
        "텍스트 길이에 따른 어텐션의 비용",
    ),
    "by formula": ("By formula, one layer, 8 heads,", "공식으로 계산, 한 층, 헤드 8개,"),
    "length": ("tokens", "토큰 수"),
    "products": ("multiplications", "곱셈 횟수"),
    "numbers held": ("numbers held in between", "중간에 저장하는 수의 개수"),
    "parameters": ("parameters", "파라미터"),
    "encoder": ("encoder", "인코더"),
    "decoder": ("decoder", "디코더"),
    "input": ("input", "입력"),
    "output": ("output", "출력"),
    "self-attention": ("self-attention", "셀프 어텐션"),
    "cross-attention": ("cross-attention", "크로스 어텐션"),
    "feed-forward": ("feed-forward", "피드포워드"),
    "embedding": ("embedding", "임베딩"),
    "norm": ("layer normalization", "층 정규화"),
    "linear": ("linear", "선형 변환"),
    "recurrent": ("recurrent layer", "순환 층"),
    "positional": ("positions", "위치"),
    "shared": ("the same matrix", "같은 행렬"),
    "norm pre": ("normalized before each sub-layer", "각 하위 층 앞에서 정규화"),
    "norm post": ("normalized after each sub-layer", "각 하위 층 뒤에서 정규화"),
}


def caption(key: str, language: str = "en") -> str:
    """What something in a figure is called in a language."""
    if key not in _CAPTIONS or language not in LANGUAGES:
        return word(key, language)
    return _CAPTIONS[key][LANGUAGES.index(language)]
