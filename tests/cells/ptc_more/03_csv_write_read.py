import csv, io
rows = list(csv.DictReader(io.StringIO(MCPServer("Files").read_text(path="/workspace/people.csv"))))
for r in rows: r["salary"] = int(r["salary"])
out = io.StringIO()
w = csv.DictWriter(out, fieldnames=["dept", "total", "people"], lineterminator="\n")
w.writeheader()
depts = {}
for r in rows: depts.setdefault(r["dept"], []).append(r)
for d in sorted(depts): w.writerow({"dept": d, "total": sum(r["salary"] for r in depts[d]), "people": ";".join(r["name"] for r in depts[d])})
print(out.getvalue())
n = MCPServer("Files").write_text(path="/workspace/out.csv", content=out.getvalue())
print("bytes", n)
try:
    csv.reader(io.StringIO('a,"b\n'), strict=True).__next__()
except csv.Error as e:
    print("csv.Error", e)
# %%
print(*csv.reader(["x;y;z", "1;2;3"], delimiter=";"), sep="\n")
list(csv.reader(io.StringIO("a\tb\n1\t2\n"), dialect="excel-tab"))
