"""Tasks on Git repositories."""

from __future__ import annotations

import random

from atlas_gym.task.kinds import AnswerText, FileCheck, GitCheck, UnchangedCheck
from atlas_gym.task.setup import Commit, Repository, Setup
from atlas_gym.task.template import Draft, template

from .words import mailbox, people, program

GIT = "mcp-server-git"
FILES = "server-filesystem"
SUBJECTS = (
    "Tidy up the worker", "Small fixes", "Follow review comments", "Prepare the demo", "Clean configuration",
    "Rename variables", "Update settings", "Polish output", "Work on the queue", "Improve defaults",
)  # fmt: skip
KEYS = ("max_retries", "batch_size", "poll_seconds", "queue_limit")


def settings(values: dict[str, int]) -> str:
    """A settings file."""
    return "[worker]\n" + "".join(f"{key} = {value}\n" for key, value in values.items())


@template(servers=(GIT,), difficulty="medium")
def who_changed(rng: random.Random) -> Draft:
    authors = people(rng, 5)
    values = {key: rng.randint(2, 9) * 5 for key in KEYS}
    key = rng.choice(KEYS)
    subjects = rng.sample(SUBJECTS, 8)
    commits = [
        Commit(
            message="Start the project",
            files={"settings.ini": settings(values), "worker.py": "def run():\n    pass\n"},
            author=authors[0],
            email=mailbox(authors[0]),
        )
    ]
    at = rng.randint(2, 6)
    culprit, subject = "", ""
    old, new = values[key], values[key] * 10 + 1
    for number, line in enumerate(subjects):
        author = authors[rng.randrange(5)]
        if number == at:
            values[key], culprit, subject = new, author, line
        else:
            other = rng.choice([k for k in KEYS if k != key])
            values[other] += rng.randint(1, 4)
        files: dict[str, str | None] = {"settings.ini": settings(values)}
        if number % 2:
            files["worker.py"] = f"def run():\n    return {number}\n"
        commits.append(Commit(message=line, files=files, author=author, email=mailbox(author)))
    gold = """
        git = MCPServer("mcp-server-git")
        log = git.git_log(repo_path="/workspace/worker", max_count=50)
        for block in log.split("Commit: ")[1:]:
            sha = block.split()[0]
            shown = git.git_show(repo_path="/workspace/worker", revision=sha)
            if $line in shown:
                author = block.split("Author: ")[1].splitlines()[0]
                subject = block.split("Message: ")[1].splitlines()[0]
                answer(f"{author}, in the commit '{subject}'")
                break
    """
    return Draft(
        prompt=rng.choice(
            (
                f"In the repository /workspace/worker the setting {key} jumped from {old} to {new}. Who "
                "made that change, and what is the subject line of the commit?",
                f"Somebody set {key} to {new} in /workspace/worker (it was {old} before). Find the "
                "commit: I need its author and its message.",
            )
        ),
        gold=program(gold, line=f"+{key} = {new}"),
        checks=(
            AnswerText(
                name="names the author", all_of=(culprit,), options=tuple(a for a in authors if a != culprit)
            ),
            AnswerText(
                name="names the commit", all_of=(subject,), options=tuple(s for s in subjects if s != subject)
            ),
        ),
        setup=Setup(repositories=(Repository(path="worker", commits=tuple(commits)),)),
        params={"author": culprit, "subject": subject},
    )


@template(servers=(GIT,), difficulty="medium")
def commit_the_docs(rng: random.Random) -> Draft:
    author = people(rng, 1)[0]
    pages = rng.sample(("install", "usage", "faq", "design", "support", "history"), 4)
    start: dict[str, str | None] = {f"docs/{page}.md": f"# {page.title()}\n\nFirst text.\n" for page in pages}
    start |= {"src/app.py": "VERSION = 1\n", "src/core.py": "def core():\n    return 1\n"}
    changed = pages[: rng.randint(2, 3)]
    edits = {
        f"docs/{page}.md": f"# {page.title()}\n\nReworked text {rng.randint(10, 99)}.\n" for page in changed
    }
    code = {"src/app.py": f"VERSION = {rng.randint(2, 9)}\n", "src/core.py": "def core():\n    return 2\n"}
    message = rng.choice(("Rework the manual", "Refresh the documentation", "Rewrite the handbook pages"))
    gold = """
        git = MCPServer("mcp-server-git")
        status = git.git_status(repo_path="/workspace/site")
        files = [line.split()[-1] for line in status.splitlines() if "docs/" in line]
        git.git_add(repo_path="/workspace/site", files=files)
        git.git_commit(repo_path="/workspace/site", message=$message)
        answer(f"Committed {len(files)} files.")
    """
    return Draft(
        prompt=rng.choice(
            (
                "I have uncommitted changes in /workspace/site. Please commit only what is under docs/, "
                f'with the message "{message}". My changes in src/ are not ready and must stay '
                "uncommitted.",
                "Commit my documentation edits in /workspace/site (everything changed below docs/) as "
                f'"{message}". Do not commit the changed files in src/, and do not lose them either.',
            )
        ),
        gold=program(gold, message=message),
        checks=(
            GitCheck(
                name="the docs are committed",
                weight=2,
                path="site",
                branch="main",
                files=dict(edits),
                commits=3,
            ),
            # On whatever else was committed, or on nothing at all, the message is worth nothing.
            GitCheck(name="the message", path="site", branch="main", tip=message, files=dict(edits)),
            GitCheck(
                name="the code is not committed",
                gate=True,
                path="site",
                branch="main",
                files={path: start[path] for path in code},
            ),
            *(UnchangedCheck(name=f"my {path} is kept", of="file", path=f"site/{path}") for path in code),
        ),
        setup=Setup(
            repositories=(
                Repository(
                    path="site",
                    commits=(
                        Commit(message="Start", files=start, author=author, email=mailbox(author)),
                        Commit(
                            message="Add a licence",
                            files={"LICENSE": "MIT\n"},
                            author=author,
                            email=mailbox(author),
                        ),
                    ),
                    changes={**edits, **code},
                ),
            )
        ),
        params={"files": len(edits)},
    )


@template(servers=(GIT, FILES), difficulty="hard")
def cut_release(rng: random.Random) -> Draft:
    author = people(rng, 1)[0]
    major, minor = rng.randint(1, 4), rng.randint(1, 9)
    old, new = f"{major}.{minor}.0", f"{major}.{minor + 1}.0"
    features = rng.sample(
        ("export to CSV", "dark mode", "single sign-on", "audit log", "bulk upload", "retry queue"), 3
    )
    head = f"# Changes\n\n## {old}\n\n- first version\n"
    commits = [
        Commit(
            message="Start",
            files={"VERSION": old + "\n", "CHANGES.md": head},
            author=author,
            email=mailbox(author),
        )
    ]
    for number, feature in enumerate(features):
        commits.append(
            Commit(
                message=f"Add {feature}",
                files={f"feature_{number}.txt": feature + "\n"},
                branch="develop",
                start="main",
                author=author,
                email=mailbox(author),
            )
        )
    branch = f"release/{new}"
    changes = head.replace(
        "# Changes\n", f"# Changes\n\n## {new}\n\n" + "".join(f"- {f}\n" for f in features), 1
    )
    gold = """
        git, fs = MCPServer("mcp-server-git"), MCPServer("server-filesystem")
        repo = "/workspace/product"
        git.git_create_branch(repo_path=repo, branch_name=$branch, base_branch="develop")
        git.git_checkout(repo_path=repo, branch_name=$branch)
        log = git.git_log(repo_path=repo, max_count=50)
        subjects = [b.split("Message: ")[1].splitlines()[0] for b in log.split("Commit: ")[1:]]
        added = [s.removeprefix("Add ") for s in reversed(subjects) if s.startswith("Add ")]
        text = fs.read_text_file(path=repo + "/CHANGES.md")
        text = text["content"] if isinstance(text, dict) else text
        section = "# Changes\\n\\n## " + $new + "\\n\\n" + "".join(f"- {a}\\n" for a in added)
        fs.write_file(path=repo + "/CHANGES.md", content=text.replace("# Changes\\n", section, 1))
        fs.write_file(path=repo + "/VERSION", content=$new + "\\n")
        git.git_add(repo_path=repo, files=["CHANGES.md", "VERSION"])
        git.git_commit(repo_path=repo, message="Release " + $new)
        git.git_checkout(repo_path=repo, branch_name="main")
        answer("The release branch is ready.")
    """
    return Draft(
        prompt=rng.choice(
            (
                f"Please cut release {new} of /workspace/product: make a branch {branch} from develop, "
                f"set VERSION to {new}, and put a section '## {new}' at the top of CHANGES.md, right "
                "under the title, with one '- ' bullet for each feature that develop added since main (the "
                "commits 'Add ...'; write the bullet without 'Add', oldest first). Commit both files on "
                f"that branch as 'Release {new}' and leave main checked out.",
                f"We are about to release {new}. In /workspace/product branch {branch} off develop. There, "
                f"VERSION must say {new} and CHANGES.md must get a new first section '## {new}' listing, "
                "oldest first and one '- ' bullet each, what the 'Add ...' commits of develop brought "
                f"(without the word Add). One commit 'Release {new}' with both files, then go back to "
                "main.",
            )
        ),
        gold=program(gold, branch=branch, new=new),
        checks=(
            GitCheck(
                name="branch with the release commit",
                path="product",
                branch=branch,
                tip=f"Release {new}",
                commits=len(features) + 2,
                files={"VERSION": new + "\n"},
            ),
            GitCheck(
                name="VERSION on the branch", path="product", branch=branch, files={"VERSION": new + "\n"}
            ),
            GitCheck(
                name="features are listed in order",
                weight=2,
                path="product",
                branch=branch,
                contains={
                    "CHANGES.md": (
                        f"## {new} " + " ".join(f"- {f}" for f in features) + f" ## {old} - first version",
                    )
                },
            ),
            GitCheck(name="main is checked out", gate=True, path="product", current="main"),
            UnchangedCheck(name="main", of="branch", path="product", branch="main"),
            UnchangedCheck(name="develop", of="branch", path="product", branch="develop"),
            FileCheck(name="work tree of main", gate=True, path="product/VERSION", equals=old + "\n"),
        ),
        setup=Setup(repositories=(Repository(path="product", commits=tuple(commits)),)),
        params={"branch": branch, "changes": changes},
    )
