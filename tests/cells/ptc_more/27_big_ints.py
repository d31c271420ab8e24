import math
print(2**200, math.factorial(30), 7**-2, pow(3, 1000, 997), divmod(-7, 2), -7 // 2, -7 % 3, round(2.5), round(-0.5), round(1234.567, -2))
try: str(10**5000)
except ValueError as e: print("limit", str(e)[:40])
print(len(hex(10**5000)), (10**5000).bit_length(), math.isqrt(10**40), math.comb(50, 25), math.gcd(12, 18), math.lcm(4, 6))
print(int("ff", 16), int("0b101", 0), int("1_000"), float("1e3"), bin(10), oct(8), (255).to_bytes(2, "big"), int.from_bytes(b"\x01\x00", "little"), 0.1.as_integer_ratio(), (0.5).hex())
print(math.inf > 10**400, math.nan == math.nan, math.isclose(0.1 + 0.2, 0.3), math.fsum([0.1] * 10), math.dist((0, 0), (3, 4)), math.prod([1, 2, 3]))
10**10000
# %%
math.sqrt(-1)
# %%
1e308 * 10, -1e400
# %%
2.0**2000
