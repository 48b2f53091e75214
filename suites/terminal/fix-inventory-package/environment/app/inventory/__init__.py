from .loader import Item, load
from .summary import summarise

__all__ = ["Item", "load", "summarise"]
