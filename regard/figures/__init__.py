"""Pure functions from explanations to pictures, with words in English and Korean."""
