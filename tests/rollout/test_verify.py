"""Proofs: what passes, what does not, and going on where a stopped proof was."""

from __future__ import annotations

from pathlib import Path

from atlas_gym.env.world import World, WorldConfig
from atlas_gym.rollout.predict import predict
from atlas_gym.rollout.variants import VARIANTS, chosen
from atlas_gym.rollout.verify import FLOORS, Proof, read_progress, verify


def world() -> World:
    return World.shared(WorldConfig(suite="toy", runtime="memory"))


def test_the_toy_suite_is_proved_in_every_variant(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    file = tmp_path / "deep" / "proofs.jsonl"

    def go() -> tuple[Proof, ...]:
        report = verify(
            world(), world().suite.tasks[:2], progress=file, started=lambda *n: told.append(n), at_once=4
        )
        assert report.failures == ()
        assert report.fitting() == {v.name: (2, 2) for v in VARIANTS}
        assert set(report.floors()) == set(FLOORS)
        assert max(report.floors().values()) <= 0.2
        return report.proofs

    first = go()
    assert len(first) == 2 * (8 + len(FLOORS))
    assert go() == first
    assert told == [(len(first), 0), (0, len(first))]


def test_a_stopped_proof_goes_on_and_half_a_line_is_proved_again(tmp_path: Path) -> None:
    file = tmp_path / "proofs.jsonl"
    variants = chosen(["tools/json"])
    verify(world(), world().suite.tasks[:1], variants=variants, floors=(), progress=file)
    with file.open("a") as handle:
        handle.write('{"key": "half')
    assert len(read_progress(file)) == 1
    report = verify(world(), world().suite.tasks[:2], variants=variants, floors=(), progress=file)
    assert (len(report.proofs), report.reused) == (2, 1)


def test_a_gold_program_that_fails_is_a_failure_with_its_reason_and_is_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "proofs.jsonl"
    task = world().suite.tasks[0].model_copy(update={"gold": 'answer("no idea")'})
    report = verify(world(), [task], variants=chosen(["tools/json"]), floors=("empty",), progress=file)
    (failed,) = report.failures
    assert failed.policy == "gold"
    assert "failed checks" in failed.detail
    assert len(read_progress(file)) == 1


def test_a_task_whose_server_is_unknown_is_a_failure_not_a_crash() -> None:
    task = world().suite.tasks[0].model_copy(update={"distractors": ("nobody",)})
    report = verify(world(), [task], variants=chosen(["tools/json"]), floors=())
    assert "nobody" in report.failures[0].detail


def test_a_changed_task_is_proved_again(tmp_path: Path) -> None:
    file = tmp_path / "proofs.jsonl"
    task = world().suite.tasks[0]
    verify(world(), [task], variants=chosen(["tools/json"]), floors=(), progress=file)
    changed = task.model_copy(update={"prompt": task.prompt + " Please."})
    report = verify(world(), [changed], variants=chosen(["tools/json"]), floors=(), progress=file)
    assert report.reused == 0


def test_predictions_are_lower_bounds_of_what_gold_uses() -> None:
    task = world().suite.tasks[0]
    proofs = {p.variant: p for p in verify(world(), [task], floors=()).proofs}
    for prediction in predict(world(), task):
        proof = proofs[prediction.variant.name]
        assert prediction.at_reset == proof.context_at_reset
        assert prediction.at_reset <= prediction.at_least <= proof.context_at_end
