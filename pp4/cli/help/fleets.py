"""Help of the commands about many hosts."""

from __future__ import annotations

from typing import Final

from pp4.cli.help.page import Help
from pp4.errors import Exit

HELP: Final[dict[str, Help]] = {
    "fleet plan": Help(
        short="Rounds of disjoint GPU pairs within each node",
        needs="names of nodes and how many GPUs each has, or their UUIDs, which srun can collect.",
        leaves="with --out, the file of the plan; else nothing.",
        examples=(
            "pp4 fleet plan node1=8 node2=8",
            "pp4 fleet plan --nodes nodes.txt --mode quick --out plan.json",
            "srun --nodes=2 --ntasks-per-node=1 --output=nodes.txt bash -c \\\n"
            "    'echo \"$SLURMD_NODENAME=$(nvidia-smi --query-gpu=uuid \\\n"
            "    --format=csv,noheader | paste -sd,)\"'",
        ),
        exits={Exit.REFUSED: "a node that is none, or a file that is there already"},
        see=("pp4 fleet emit slurm", "docs/fleet.md"),
    ),
    "fleet emit slurm": Help(
        short="A batch script for each node of a plan",
        needs="a plan, and a new directory that all nodes see under the same path. GPUs by UUID, "
        "unless --rehearse.",
        leaves="that directory with the plan and a script for each node; nothing is submitted.",
        examples=(
            "pp4 fleet emit slurm plan.json --out /shared/fleet-1 --pp4 /opt/pp4/bin/pp4",
            'for one in /shared/fleet-1/*.sbatch; do sbatch --partition=gpu "$one"; done',
            "pp4 fleet emit slurm plan.json --out /shared/fleet-0 --rehearse",
        ),
        exits={Exit.REFUSED: "no plan that will do, or a directory that is there already"},
        see=("pp4 fleet plan", "pp4 fleet report", "docs/fleet.md"),
    ),
    "fleet report": Help(
        short="Which GPUs, links and nodes are suspect",
        needs="the directory of a run, or receipts from anywhere and their plan.",
        leaves="nothing: it only reads.",
        examples=(
            "pp4 fleet report /shared/fleet-1",
            "pp4 fleet report /shared/fleet-1 --share 0.75 --json",
            "pp4 fleet report --plan plan.json collected/*.json",
        ),
        exits={
            Exit.DONE: "every pair of the plan passed",
            Exit.WRONG: "a pair failed, or a receipt contradicts itself",
            Exit.INCONCLUSIVE: "nothing failed, and some pairs are unknown",
        },
        see=("pp4 verify-receipt", "docs/fleet.md"),
    ),
}
