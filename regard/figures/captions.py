"""Words of figures in English and Korean."""

from regard.errors import InputError

LANGUAGES = ("en", "ko")

_CAPTIONS = {
    # attention
    "queries": ("queries", "쿼리"),
    "keys": ("keys", "키"),
    "values": ("values", "밸류"),
    "weight": ("weight", "가중치"),
    "head": ("head", "헤드"),
    "query tokens": ("query tokens", "쿼리 토큰"),
    "written tokens": ("query tokens: the token being written", "쿼리 토큰: 생성할 토큰"),
    "key tokens": ("key tokens", "키 토큰"),
    "area is weight": ("area is the weight", "넓이 = 가중치"),
    "vector entries": ("entries of the vectors", "벡터의 성분"),
    "thicker lines": ("Thicker lines are larger weights.", "선이 굵을수록 가중치가 큽니다."),
    "target words": ("words of the translation", "번역문 단어"),
    "source words": ("words of the source", "원문 단어"),
    "alignment": ("translation alignment", "번역 정렬"),
    "alignment weights": (
        "Weights are summed over the tokens of a source word and averaged over those of a target "
        "word.",
        "원문 단어는 토큰 가중치의 합, 번역문 단어는 토큰 가중치의 평균입니다.",
    ),
    "weighted sum": ("weighted sum of the values: context", "밸류의 가중합: 문맥 벡터"),
    "query steps": (
        "One query: compared with every key, scaled, masked, normalized, and the values it sums.",
        "쿼리 하나를 모든 키와 비교하고, 스케일링·마스킹·정규화한 뒤 밸류를 더하는 과정입니다.",
    ),
    # concepts
    "masks": (
        "Masks: which query may see which key",
        "마스크: 어떤 쿼리가 어떤 키를 볼 수 있는가",
    ),
    "masks legend": (
        "Filled: allowed. Crossed out: masked, its score becomes −∞.",
        "채운 칸: 허용. 사선 칸: 차단, 점수가 −∞가 됩니다.",
    ),
    "allowed": ("allowed", "허용"),
    "not allowed": ("masked", "차단"),
    "causal mask": ("causal mask", "인과 마스크"),
    "padding mask": ("padding mask", "패딩 마스크"),
    "window mask": ("window mask", "윈도 마스크"),
    "causal and padding": ("causal and padding", "인과 + 패딩 마스크"),
    "positions": ("Sinusoidal positional encoding", "사인·코사인 위치 인코딩"),
    "position": ("position", "위치"),
    "dimension": ("dimension", "차원"),
    "schedule": ("Learning rate with warm-up", "워밍업이 있는 학습률"),
    "complexity": ("Cost of attention by text length", "텍스트 길이에 따른 어텐션 비용"),
    "by formula": ("Computed by formula: one layer, 8 heads,", "이론값: 한 층, 헤드 8개,"),
    "tokens": ("tokens", "토큰 수"),
    "multiplications": ("multiplications", "곱셈 횟수"),
    "stored numbers": ("intermediate numbers stored", "저장하는 중간값의 개수"),
    # architecture
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
    "shared": ("shared matrix", "공유 행렬"),
    "norm pre": ("normalized before each sublayer", "각 서브층 앞에서 정규화"),
    "norm post": ("normalized after each sublayer", "각 서브층 뒤에서 정규화"),
    # worked example
    "worked example": ("A worked example of attention", "숫자로 따라가는 어텐션"),
    "x": ("inputs, one row for each word", "입력: 단어마다 한 행"),
    "x_key": ("inputs of keys and values", "키와 밸류의 입력"),
    "w_query": ("query weights", "쿼리 가중치 행렬"),
    "w_key": ("key weights", "키 가중치 행렬"),
    "w_value": ("value weights", "밸류 가중치 행렬"),
    "query": ("queries: what each word looks for", "쿼리: 각 단어가 찾는 것"),
    "key": ("keys: what each word can be found by", "키: 각 단어를 찾는 단서"),
    "value": ("values: what each word contributes", "밸류: 각 단어가 전달하는 것"),
    "compared": ("similarities of each query with each key", "각 쿼리와 각 키의 유사도"),
    "scores": ("scores: similarities, scaled", "점수: 스케일링한 유사도"),
    "masked": ("scores after the mask", "마스크를 적용한 점수"),
    "weights": ("weights: each row sums to 1", "가중치: 각 행의 합은 1"),
    "context": ("output: weighted sums of the values", "출력: 밸류의 가중합"),
    "similarity": ("similarity", "유사도"),
    "mask": ("mask", "마스크"),
    "temperature": ("temperature", "온도"),
    "row sum": ("sum", "합"),
    # evaluation
    "evaluation": ("Evaluation", "평가"),
    "sentences": ("sentences", "문장"),
    "interval": ("error bars: 95 % interval", "오차 막대: 95% 구간"),
    "bleu by length": ("BLEU by length of the source in words", "원문 길이(단어 수)별 BLEU"),
    "words by references": (
        "F1 of words by their frequency in the references",
        "참조 번역에 나온 횟수별 단어 F1",
    ),
    "words by training": (
        "F1 of words by their frequency in the training data",
        "학습 데이터에 나온 횟수별 단어 F1",
    ),
    "alignment errors": ("Alignment error rate of each head", "헤드별 정렬 오류율"),
    "read after": ("read after the word is written", "단어를 생성한 뒤의 어텐션"),
    "read before": ("read to write the word", "단어를 생성할 때의 어텐션"),
    "chosen": ("outlined: chosen", "테두리: 선택된 헤드"),
    "source": ("source", "원문"),
    "reference": ("reference", "참조 번역"),
    "differences": (
        "Underlined: not in the reference. Struck through: in the reference, but missing.",
        "밑줄: 참조 번역에 없음. 취소선: 참조 번역에 있으나 빠짐.",
    ),
    "largest difference first": (
        "Sentences that differ most come first.",
        "차이가 큰 문장부터 나옵니다.",
    ),
    "worst first": ("The worst sentences come first.", "점수가 낮은 문장부터 나옵니다."),
    "hide equal": ("hide sentences with equal translations", "번역이 같은 문장 숨기기"),
    "p-value": ("p", "p값"),
    "exact match": ("exact match", "완전 일치"),
    "perplexity": ("perplexity", "퍼플렉서티"),
    # training curves
    "curves": ("Learning curves", "학습 곡선"),
    "training": ("training", "학습"),
    "validation": ("validation", "검증"),
    "no validation": ("not validated yet", "아직 검증하지 않음"),
    "loss": ("loss", "손실"),
    "loss per target": ("loss (−log p per target token)", "손실 (타깃 토큰당 −log p)"),
    "score": ("score", "점수"),
    "accuracy": ("accuracy", "정확도"),
    "learning rate": ("learning rate", "학습률"),
    "speed": ("target tokens per second", "초당 타깃 토큰 수"),
    "logarithmic": ("logarithmic", "로그 눈금"),
    "step": ("step", "스텝"),
    "best": ("best", "최고"),
}


def check_language(language: str) -> None:
    """Raise an InputError for a language without captions."""
    if language not in LANGUAGES:
        raise InputError(f"language is {language!r}; it can be {' or '.join(LANGUAGES)}.")


def caption(key: str, language: str = "en") -> str:
    """Return a caption in a language."""
    check_language(language)
    return _CAPTIONS[key][LANGUAGES.index(language)]
