import json, datetime, decimal
print(json.dumps({"é": [1.0, None, True, "😀"], "n": float("nan")}), json.dumps("é", ensure_ascii=False), json.dumps([], separators=(",", ":")))
class Enc(json.JSONEncoder):
    def default(self, o):
        if isinstance(o, (datetime.date, decimal.Decimal)): return str(o)
        if isinstance(o, set): return sorted(o)
        return super().default(o)
print(json.dumps({"d": datetime.date(2025, 1, 2), "s": {3, 1}, "m": decimal.Decimal("1.10")}, cls=Enc), json.dumps(object, default=str))
try: json.dumps({(1, 2): 3})
except TypeError as e: print(e)
for bad in ("{'a': 1}", "", "[1,]", '{"a": 1} x', "nul"):
    try: json.loads(bad)
    except json.JSONDecodeError as e: print(e.msg, e.pos)
print(json.loads('{"a": 1e400, "b": 12345678901234567890, "c": 1.10}', parse_float=str), json.loads('"\\ud83d\\ude00"'), json.loads("[NaN]"))
print(json.dumps({1: "a", None: 2, True: 3}), json.loads('{"a":1,"a":2}', object_pairs_hook=list))
json.loads("[1, 2")
