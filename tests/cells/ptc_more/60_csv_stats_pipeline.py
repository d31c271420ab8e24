import csv, io, json, re
from statistics import mean
files = MCPServer("Files"); raw = files.read_text("/workspace/salaries.csv")
people = [dict(p, salary=float(p["salary"])) for p in csv.DictReader(io.StringIO(raw))]
avg = {d: mean(p["salary"] for p in people if p["dept"] == d) for d in {p["dept"]: 0 for p in people}}
report = "# Report\n\n" + "\n".join(f"- **{d}**: {a:,.0f}" for d, a in sorted(avg.items(), key=lambda x: -x[1]))
print(report)
assert files.write_text(path="/workspace/report.md", content=report) == len(report)
top = max(people, key=lambda p: p["salary"])
answer_text = f"{top['name']} earns {top['salary']:.0f}"
# %%
print(answer_text, "\n", json.dumps(avg, indent=1))
{"top": top["name"], "n": len(people)}
