"""One long sentence, and a model that goes on with it behind the last word it knows was said."""

from livekit.agents import llm

from recall_livekit.testing.voices import WORD_MS, lexicon, said

from .dialogue import bare

SENTENCE = (
    "anchor basket candle dolphin falcon garden harbour island jacket kettle lantern meadow needle "
    "orchard pepper quarry saddle temple umbrella velvet walnut yellow acorn barley cactus dragon "
    "eagle feather ginger hammer kitten ladder marble nickel olive pigeon quiver rabbit urchin "
    "violin"
)
WORDS = tuple(SENTENCE.split())
"""None twice, and none that instructions or a briefing use."""
WORD_S = WORD_MS / 1000
lexicon(WORDS)


def recite(chat_ctx: llm.ChatContext) -> str:
    """Says the sentence, or what is left of it by all that the context says was said of it."""
    known = {word for text in said(chat_ctx) for word in bare(text)}
    told = max((place for place, word in enumerate(WORDS, 1) if word in known), default=0)
    return f"{' '.join(WORDS[told:])}." if WORDS[told:] else "That was all."
