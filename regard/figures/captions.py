"""The words of figures, in English and Korean."""

from regard.figures.words import LANGUAGES, word

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
        "One query compared with every key, scaled, masked, normalised, and what it collects.",
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
    "norm": ("layer normalisation", "층 정규화"),
    "linear": ("linear", "선형 변환"),
    "recurrent": ("recurrent layer", "순환 층"),
    "positional": ("positions", "위치"),
    "shared": ("the same matrix", "같은 행렬"),
    "norm pre": ("normalised before each sub-layer", "각 하위 층 앞에서 정규화"),
    "norm post": ("normalised after each sub-layer", "각 하위 층 뒤에서 정규화"),
}


def caption(key: str, language: str = "en") -> str:
    """What something in a figure is called in a language."""
    if key not in _CAPTIONS or language not in LANGUAGES:
        return word(key, language)
    return _CAPTIONS[key][LANGUAGES.index(language)]
