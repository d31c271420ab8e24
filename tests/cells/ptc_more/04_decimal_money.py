from decimal import Decimal, ROUND_HALF_UP, ROUND_HALF_EVEN, getcontext, localcontext, InvalidOperation
prices = ["19.995", "0.1", "0.2", "1e3", "-7.005"]
total = sum(map(Decimal, prices), Decimal(0))
print(total, total.quantize(Decimal("0.01"), rounding=ROUND_HALF_UP), Decimal("2.675").quantize(Decimal(".01"), ROUND_HALF_EVEN))
with localcontext() as ctx:
    ctx.prec = 50
    print(Decimal(1) / Decimal(7))
getcontext().prec = 6
print(Decimal(1) / 7, Decimal("NaN"), Decimal("Infinity"), Decimal("3.14").as_tuple())
try:
    Decimal("twelve")
except InvalidOperation as e:
    print(type(e).__name__, e)
Decimal(0.1)
# %%
Decimal(2).sqrt(), f"{Decimal('1234567.891'):,.2f}"
