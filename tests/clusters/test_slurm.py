from __future__ import annotations

import os
import subprocess

from slurm import NODES, Slurm


def test_a_step_runs_on_the_node_that_it_names_and_carries_every_byte(slurm: Slurm) -> None:
    sent = os.urandom(1_000_000)
    step = ["srun", "--nodelist=n1", "cat"]
    done = subprocess.run(step, input=sent, stdout=subprocess.PIPE, env=slurm.environment, check=True, timeout=600)
    assert done.stdout == sent
    assert slurm.ask("srun", "--nodes=1", "--nodelist=n2", "hostname") == "n2\n"
    assert sorted(slurm.ask("srun", "--nodes=4", "hostname").split()) == list(NODES)


def test_a_node_that_is_set_down_ends_its_job_and_comes_back(slurm: Slurm) -> None:
    job = slurm.ask(
        "sbatch", "--parsable", "--no-requeue", "--nodelist=n3", "--output=/dev/null", "--wrap=sleep 1000"
    ).strip()
    slurm.node("n3").wait_for(lambda: bool(slurm.node("n3").processes("sleep 1000")), "the job")
    assert slurm.job_state(job) == "RUNNING"
    slurm.set_down("n3")
    assert slurm.final_state(job) == "NODE_FAIL"
    slurm.node("n3").wait_for(lambda: not slurm.node("n3").processes(), "the end of its processes")
    assert slurm.node_state("n3") == "down"
    slurm.resume("n3")
    assert slurm.ask("srun", "--nodelist=n3", "hostname") == "n3\n"


def test_a_cancelled_step_that_held_cards(slurm: Slurm) -> None:
    command = [
        "srun",
        "--nodelist=n4",
        "--gres=gpu:2",
        "sh",
        "-c",
        "echo $SLURM_JOB_ID $SLURM_STEP_GPUS; exec sleep 1000",
    ]
    with subprocess.Popen(command, env=slurm.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as step:
        assert step.stdout
        job, cards = step.stdout.readline().decode().split()
        assert cards == "0,1"
        slurm.cancel(job)
        assert step.wait(600) != 0
    assert slurm.final_state(job) == "CANCELLED"
    assert slurm.node("n4").processes("sleep") == []
