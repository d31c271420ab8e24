from fractions import Fraction
import statistics as st, random, secrets, uuid
print(Fraction(3, 12), Fraction("0.125") + Fraction(1, 3), Fraction(0.1).limit_denominator(100), sum([Fraction(1, n) for n in range(1, 6)]))
data = [2, 4, 4, 4, 5, 5, 7, 9]
print(st.mean(data), st.median(data), st.mode(data), st.pstdev(data), round(st.stdev(data), 4), st.quantiles(data, n=4), st.multimode([1, 1, 2, 2]), round(st.correlation([1, 2, 3], [2, 4, 7]), 4), st.linear_regression([1, 2, 3], [2, 4, 6]))
rng = random.Random(42)
print(rng.random(), rng.randint(1, 6), rng.choice("abc"), rng.sample(range(100), 3), rng.gauss(0, 1))
random.seed("x"); print(random.random(), random.shuffle(l := [1, 2, 3]), l)
print(len(secrets.token_hex(8)), uuid.uuid5(uuid.NAMESPACE_DNS, "example.org"), uuid.UUID(int=5), len(str(uuid.uuid4())), uuid.uuid4().version, len(str(uuid.uuid1())))
try: st.mean([])
except st.StatisticsError as e: print(e)
st.NormalDist(100, 15).cdf(115)
