"""python -m tests.bench.strategies SCENE ...: every strategy of densification on the same scene, at the same final count.

Adaptive density control runs first; what it ends with is the cap, or the budget, of the others. All densify at the same
iterations, from --start to --stop every --every, and share everything else: views, seed, learning rates, loss. MCMC's growth
is raised above its 5 % where it would not reach the count in so few events. Prints a Markdown table a scene.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from app.config import DensifyConfig, StrategyName, TrainConfig
from app.data.open import open_scene
from app.data.scene import Scene
from app.training.backend import ready_backend, set_threads, usable_cores
from app.training.evaluate import evaluate
from app.training.schedule import EVERY_POWER, REFERENCE_ITERATIONS, START_POWER, resolve
from app.training.trainer import Trainer

STRATEGIES: tuple[StrategyName, ...] = ("adc", "absgs", "mcmc", "taming", "none")


@dataclass(frozen=True)
class Result:
    strategy: str
    psnr: float
    ssim: float
    count: int
    seconds: float


def config_of(args: argparse.Namespace) -> TrainConfig:
    """Densifies at the iterations asked for: the schedule of short runs scales what it is given."""
    ratio = min(1.0, args.iterations / REFERENCE_ITERATIONS)
    densify = DensifyConfig(start=round(args.start / ratio ** START_POWER), stop=round(args.stop / ratio),
                            every=max(1, round(args.every / ratio ** EVERY_POWER)))
    return TrainConfig(iterations=args.iterations, seed=args.seed, densify=densify)


def with_strategy(config: TrainConfig, strategy: StrategyName, count: int, start: int) -> TrainConfig:
    """`count` Gaussians at the end (0 = as many as there will be), from `start`."""
    densify = replace(config.densify, strategy=strategy, cap=count, taming_budget=count)
    if strategy == "mcmc" and count > start:
        plan = resolve(config)
        events = (plan.stop - 1) // plan.every - plan.start // plan.every
        densify = replace(densify, mcmc_growth=max(densify.mcmc_growth, (count / start) ** (1.0 / max(events - 2, 1)) - 1.0))
    return replace(config, densify=densify)


def run(scene: Scene, config: TrainConfig, backend: str) -> Result:
    trainer = Trainer(scene, config, backend=backend)
    begun = time.perf_counter()
    while trainer.iteration < config.iterations:
        trainer.step()
    trainer.settle()
    seconds = time.perf_counter() - begun
    found = evaluate(trainer)
    return Result(config.densify.strategy, found.psnr, found.ssim, len(trainer.params), seconds)


def bench(path: Path, args: argparse.Namespace, backend: str) -> list[Result]:
    scene = open_scene(str(path), long_side=args.long_side, eval_every=8)
    config, results = config_of(args), []
    start = len(Trainer(scene, config, backend=backend).params)
    count = args.count
    for strategy in STRATEGIES:
        results.append(run(scene, with_strategy(config, strategy, count, start), backend))
        count = count or results[0].count
        print(f"{path.name} {results[-1]}", file=sys.stderr, flush=True)
    return results


def table(name: str, results: list[Result], args: argparse.Namespace) -> str:
    lines = [f"{name}, {args.long_side} px, {args.iterations} iterations, seed {args.seed}", "",
             "| strategy | held-out PSNR [dB] | SSIM | Gaussians | seconds |", "|---|---|---|---|---|"]
    lines += [f"| {r.strategy} | {r.psnr:.2f} | {r.ssim:.4f} | {r.count:,} | {r.seconds:.0f} |" for r in results]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="+", type=Path)
    parser.add_argument("--long-side", type=int, default=400)
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("--count", type=int, default=0, help="final count; 0 = what adaptive density control ends with")
    parser.add_argument("--start", type=int, default=100)
    parser.add_argument("--stop", type=int, default=1500)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args()
    backend = ready_backend("auto").name
    set_threads(args.threads or usable_cores(), backend)
    for path in args.scenes:
        print(table(path.name, bench(path, args, backend), args), "\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
