from collections import namedtuple

Item = namedtuple("Item", "sku name quantity price")


def load(path):
    items = []
    with open(path) as stream:
        next(stream)
        for number, line in enumerate(stream):
            line = line.split("#")[0].strip()
            if not line:
                continue
            sku, name, quantity, price = line.split(",")
            try:
                items.append(Item(sku, name, int(quantity), float(price)))
            except ValueError:
                raise ValueError(f"line {number}: not a number")
    return items
