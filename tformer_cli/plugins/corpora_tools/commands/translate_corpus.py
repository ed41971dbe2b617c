"""`tformer translate-corpus`: whole corpora, by several processes or a cluster."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from tformer_cli.cli.commands.translate import (
    ConstraintOptions,
    EnsembleOptions,
    parse_shard,
)
from tformer_cli.cli.jobs import show_times
from tformer_cli.cli.options import (
    REQUIRED,
    ModelArgument,
    QuietOption,
    TranslatorOptions,
    argument,
    option_field,
    takes_decoding_options,
)
from tformer_cli.cli.progress import LineProgress, line_progress
from tformer_cli.cli.streams import count_of_lines, note, warn_of_bytes, warn_of_results, write_line
from tformer_cli.errors import UsageError
from tformer_cli.text.lines import LineCounts, check_file
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from tformer_cli.plugins.corpora_tools.bulk.plan import GivenCorpus
    from tformer_cli.plugins.corpora_tools.bulk.shards import BulkEngine
    from tformer_cli.plugins.corpora_tools.bulk.translate_corpus import BulkState, CorpusReport
    from tformer_cli.search.keywords import SearchOverrides

SOURCE = argument(
    "SOURCE…",
    "Text, .jsonl, .tsv, .csv or .parquet files (line files also as .gz, .xz, .bz2 or .zst), or "
    "Hugging Face datasets (a directory or a hub name). All must have the same format.",
    role="reads_file",
)
DIRECTORY = option_field(
    REQUIRED,
    "Directory for the shards; if the same command has begun it, continues there.",
    "-o",
    role="adds_files",
)


@dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """The sources, and how they are divided."""

    source_field: str = option_field(
        "",
        "Column (from 1) or field of the text; dots name nested fields.",
        shown="1, or source",
        metavar="COLUMN",
    )
    target_field: str = option_field(
        "translation",
        "Field or column for the translation; in TSV it is added at the end.",
        metavar="FIELD",
    )
    score_field: str = option_field(
        "",
        "Field or column for the translation's score. In TSV any name adds a column.",
        shown="none",
        metavar="FIELD",
    )
    input_format: Literal["auto", "text", "tsv", "csv", "jsonl", "parquet", "dataset"] = (
        option_field("auto", "Format of the sources; auto: by file extension.", panel="Formats")
    )
    split: str = option_field(
        "train", "Split of a dataset; train[:1000] works.", panel="Formats", metavar="SPLIT"
    )
    dataset_config: str = option_field(
        "", "Configuration of a dataset.", panel="Formats", shown="its only one", metavar="CONFIG"
    )
    lines_per_shard: int = option_field(
        10240,
        "Lines per shard: a worker translates one shard at a time, and an interruption loses at "
        "most one per worker.",
        panel="Large jobs",
        min=1,
    )
    shard: str | None = option_field(
        None,
        "Translate only part I of N of the lines (I from 0), into its own DIR. `cat` joins the "
        "outputs.",
        panel="Large jobs",
        shown="all",
        metavar="I/N",
    )

    def read_corpus(self, sources: list[str]) -> "GivenCorpus":
        """The same for the workflow."""
        from tformer_cli.plugins.corpora_tools.bulk.plan import GivenCorpus
        from tformer_cli.plugins.corpora_tools.bulk.shards import Fields

        if not self.target_field or self.target_field == self.score_field:
            raise UsageError("--target-field: must differ from --score-field")
        fields = Fields(
            source=self.source_field, translation=self.target_field, score=self.score_field
        )
        return GivenCorpus(
            sources=sources,
            kind=None if self.input_format == "auto" else self.input_format,
            fields=fields,
            dataset_config=self.dataset_config,
            split=self.split,
            lines_per_shard=self.lines_per_shard,
            part=None if self.shard is None else parse_shard(self.shard),
        )


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """The workers that translate."""

    workers: int | None = option_field(
        None,
        "Number of processes on this machine. --threads is per process; 0 divides the cores among "
        "them.",
        panel="Large jobs",
        shown="one a processor; one a GPU",
        min=1,
        max=1024,
    )

    cluster: str | None = option_field(
        None,
        "Dask scheduler whose workers do the translation; they must see the model, the sources "
        "and DIR under the same paths. Needs the extra cluster.",
        panel="Large jobs",
        shown="none",
        metavar="HOST:PORT",
    )
    tls_ca: str | None = option_field(
        None,
        "Certificate of the authority that the scheduler and workers trust, in PEM format.",
        panel="Large jobs",
        shown="no TLS",
        role="reads_file",
    )
    tls_cert: str | None = option_field(
        None,
        "Certificate of this program for the scheduler.",
        panel="Large jobs",
        shown="no TLS",
        role="reads_file",
    )
    tls_key: str | None = option_field(
        None,
        "Key of the certificate.",
        panel="Large jobs",
        shown="in the same file",
        role="reads_file",
    )

    def engine(self, threads: int, *, quiet: bool) -> "BulkEngine":
        """Returns the object that translates the shards."""
        from tformer_cli.plugins.corpora_tools.bulk.cluster import DaskCluster, TlsFiles
        from tformer_cli.plugins.corpora_tools.bulk.processes import LocalProcesses

        files = {"--tls-ca": self.tls_ca, "--tls-cert": self.tls_cert, "--tls-key": self.tls_key}
        options = [name for name, file in files.items() if file is not None]
        if self.cluster is None:
            if options:
                raise UsageError(f"{options[0]}: only for a cluster; add --cluster HOST:PORT")
            return LocalProcesses(self.workers, threads)
        if self.workers is not None:
            raise UsageError("--workers: only for processes on this machine; omit it or --cluster")
        # Now: the error of a connection would not name the file
        for name in options:
            check_file(str(files[name]))
        if options and not (self.tls_ca and self.tls_cert):
            raise UsageError(f"{options[0]}: TLS needs --tls-ca and --tls-cert; name both")
        tls = None
        if self.tls_ca and self.tls_cert:
            tls = TlsFiles(ca=self.tls_ca, certificate=self.tls_cert, key=self.tls_key)
        return DaskCluster(self.cluster, tls, partial(note, quiet=quiet))


@takes_decoding_options
def translate_corpus(
    model: ModelArgument,
    sources: list[str] = SOURCE,
    *,
    output: Path = DIRECTORY,
    corpus: CorpusOptions,
    workers: WorkerOptions,
    constraints: ConstraintOptions,
    ensemble: EnsembleOptions,
    options: TranslatorOptions,
    dry_run: bool = option_field(
        False, "Read everything and show what would be done; translate nothing."
    ),
    quiet: QuietOption = False,
    **decoding: Unpack["SearchOverrides"],
) -> None:
    """Translate corpora into shards of the same format, with all columns.

    Each line is translated once, in order, exactly as `tformer translate` does. Run the same
    command again after any interruption to continue; manifest.json lists the contents of each
    shard.

    Examples:
        tformer translate-corpus runs/mine news.txt -o news.fr --workers 4
        tformer translate-corpus runs/mine a.jsonl b.jsonl.gz -o out --source-field text.en
        tformer translate-corpus runs/mine reviews.parquet -o out --target-field text_fr
        tformer translate-corpus runs/mine big.en -o out --cluster node1:8786
    """
    from tformer_cli.plugins.corpora_tools.bulk.translate_corpus import (
        BulkOptions,
        preview_corpus,
        translate_corpus,
    )

    corpora = corpus.read_corpus(sources)
    settings: dict[str, Any] = {
        **options.settings, "tell": partial(note, quiet=quiet),
        **ensemble.arguments(), **constraints.arguments(), **decoding,
    }  # fmt: skip
    # The sources are read first: only then is the number of lines known
    with _show(quiet=quiet) as (scanned, progress):
        bulk = BulkOptions(
            workers=workers.engine(options.threads, quiet=quiet),
            glossary=constraints.terms(),
            scanned=scanned,
            progress=progress,
        )
        do = preview_corpus if dry_run else translate_corpus
        try:
            report = do(model, corpora, output, bulk, **settings)
        except (KeyboardInterrupt, SystemExit):  # the second: SIGTERM
            note(f"{output}: stopped; run the same command again to resume", quiet=quiet or dry_run)
            raise
    if dry_run:
        _preview(report, output)
        return
    _report(report, quiet=quiet)
    write_line(str(output))


@contextmanager
def _show(*, quiet: bool) -> Iterator[tuple[Callable[[int], None], Callable[["BulkState"], None]]]:
    """Yields the progress of reading the sources, and then of translating."""
    with ExitStack() as stack:
        reading = stack.enter_context(line_progress(None, "reading", quiet=quiet))
        bars: list[LineProgress] = []

        def show(state: "BulkState") -> None:
            if not bars:
                stack.close()  # the sources are read
                translating = line_progress(state.total, quiet=quiet, begun=state.begun)
                bars.append(stack.enter_context(translating))
            rates = (f"worker {name}: {rate:,.1f}" for name, rate in state.rates().items())
            bars[0].update(state.rows, ", ".join(rates))

        yield reading.update, show


def _preview(report: "CorpusReport", output: Path) -> None:
    """Writes what would be done."""
    plan = report.plan
    for source in plan.sources:
        write_line(f"{source.name}: {source.kind}, {count_of_lines(source.rows)}")
    shards = count_of(len(plan.shards), "shard")
    write_line(f"{output}: {report.begun:,} of {count_of_lines(plan.rows)} done; {shards}")


def _report(report: "CorpusReport", *, quiet: bool) -> None:
    """Notes the speed, and warns of lines that were replaced, split or cut off."""
    from tformer_cli.kinds.lines.job import ResultCounts

    counts = report.counts
    # Lines of an earlier start took none of this time
    n_lines = counts["lines"] - report.begun
    rate = n_lines / max(report.seconds, 1e-9)
    result = f"{count_of_lines(n_lines)} in {report.seconds:.1f} s"
    note(
        f"{result}, {rate:,.1f} lines/s; {count_of(len(report.plan.shards), 'shard')}", quiet=quiet
    )
    show_times(report.times, quiet=quiet)
    warn_of_bytes(LineCounts(not_utf8=counts["not_utf8"]))
    warn_of_results(
        ResultCounts(
            split=counts["split"],
            truncated=counts["truncated"],
            unsatisfied=counts["unsatisfied"],
            unknown=counts["unknown"],
            sentences=counts["sentences"],
            unseen=counts["unseen"],
            untrained=counts["untrained"],
        ),
        quiet=quiet,
    )
