def summarise(items, totals={}):
    value = 0
    for item in items:
        totals[item.sku] = totals.get(item.sku, 0) + item.quantity
        value += round(item.quantity * item.price, 2)
    low = [item.sku for item in items if item.quantity < 5]
    return {"skus": len(totals), "units": sum(totals.values()), "value": value, "low": low}
