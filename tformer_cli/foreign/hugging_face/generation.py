"""The library's settings of searches: generation_config.json, or those in config.json without it.

Tokens that are never written get a bias; settings that the search here has become its defaults;
others are noted where a user chooses the search anyway, and refused where they change what is
searched for. Source: transformers 5.23, generation/configuration_utils.py.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.foreign_model import VocabularyOrder
from tformer_cli.foreign.hugging_face.keys import OUTPUT, OWN, SPEED
from tformer_cli.foreign.keys import (
    USED,
    KeyRows,
    Keys,
    no_effect,
    number,
    omit,
    only,
    quote,
    read_json_file,
    rows_of,
)
from tformer_cli.model.config import ModelConfig
from tformer_cli.search.config import NEED_SAMPLING, DecodingConfig
from tformer_cli.structure import StructureError, structure
from tformer_cli.text.tokenizer import EOS_ID

FILE = "generation_config.json"
_SAMPLING = no_effect("of sampling")
_TOP_K = 50  # the library's where it samples and nothing says it
_ROWS: KeyRows = MappingProxyType(
    {
        **rows_of("max_length max_new_tokens min_length min_new_tokens num_beams", USED),
        **rows_of("no_repeat_ngram_size repetition_penalty length_penalty", USED),
        **rows_of("do_sample temperature top_k top_p renormalize_logits", USED),
        **rows_of("bad_words_ids suppress_tokens forced_bos_token_id forced_eos_token_id", USED),
        **rows_of("min_p typical_p top_h epsilon_cutoff eta_cutoff", _SAMPLING),
        "early_stopping": omit(
            "a search ends when no hypothesis can become better than those that it has", False
        ),
        "num_return_sequences": omit("one text is written; --n-best writes more", 1),
        "num_beam_groups": omit("chosen by --diversity-groups", 1),
        "diversity_penalty": omit("chosen by --diversity-penalty", 0.0),
        "begin_suppress_tokens": only(None, []),
        "encoder_no_repeat_ngram_size": only(None, 0),
        "encoder_repetition_penalty": only(None, 1.0),
        "exponential_decay_length_penalty": only(None),
        "sequence_bias": only(None),
        "force_words_ids": only(None),
        "constraints": only(None),
        "stop_strings": only(None),
        "guidance_scale": only(None, 1.0),
        "penalty_alpha": only(None, 0.0),
        "dola_layers": only(None),
        "watermarking_config": only(None),
        "token_healing": only(None, False),
        "max_time": only(None),
        "remove_invalid_values": no_effect("weights are finite"),
        **rows_of("output_attentions output_hidden_states output_scores output_logits", OUTPUT),
        "return_dict_in_generate": OUTPUT,
        **rows_of("use_cache cache_implementation cache_config return_legacy_cache", SPEED),
        **rows_of("max_cache_len low_memory prefill_chunk_size compile_config", SPEED),
        **rows_of("disable_compile continuous_batching_config use_mtp is_assistant", SPEED),
        **rows_of("num_assistant_tokens num_assistant_tokens_schedule", SPEED),
        **rows_of("assistant_confidence_threshold prompt_lookup_num_tokens", SPEED),
        **rows_of("max_matching_ngram_size assistant_early_exit assistant_lookbehind", SPEED),
        **rows_of("target_lookbehind assistant_ensemble_weight speculation_type", SPEED),
    }
)
SAMPLED = tuple(name for name in NEED_SAMPLING if name in _ROWS)
"""Settings of sampling, which the library has under the same names and with the same neutrals."""
# the same keys in config.json, which count where there is no generation_config.json
IN_CONFIG: KeyRows = MappingProxyType(dict.fromkeys(_ROWS, USED))
# the same keys of encoders
WITHOUT_EFFECT: KeyRows = MappingProxyType(
    dict.fromkeys(_ROWS, no_effect("of searches, which encoders have not"))
)
GENERATION = Keys(
    FILE,
    "models that write",
    {
        **_ROWS,
        **rows_of("bos_token_id eos_token_id pad_token_id decoder_start_token_id", USED),
        **rows_of("_from_model_config _commit_hash transformers_version", no_effect("its origin")),
    },
)
SAMPLING = Keys(
    FILE,
    "models that write, with do_sample = true",
    {
        "min_p": only(None, 0.0),
        "typical_p": only(None, 1.0),
        "top_h": only(None),
        "epsilon_cutoff": only(None, 0.0),
        "eta_cutoff": only(None, 0.0),
    },
)


@dataclass(frozen=True, kw_only=True)
class Generation:
    """Settings of searches in a directory's files."""

    path: Path
    values: Mapping[str, Any]
    notes: tuple[str, ...]
    files: tuple[Path, ...]  # generation_config.json, if it exists

    @property
    def special_ids(self) -> dict[str, Any]:
        ids = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
        numbers = {name: self.values[name] for name in ids if self.values.get(name) is not None}
        for name, value in numbers.items():
            if isinstance(value, list):  # refused by this file's name, if there are several
                numbers[name] = value[0] if len(value) == 1 else number(self.path, numbers, name)
        return numbers

    def check_forced(self, eos: int, languages: Mapping[str, int] | None = None) -> list[str]:
        """Checks the tokens that translations are made to begin and end with."""
        first, last = (self.values.get(f"forced_{name}_token_id") for name in ("bos", "eos"))
        if last not in (None, eos, [eos]):
            raise self._unsupported_error("forced_eos_token_id")
        if first is None:
            return []
        chosen = next((name for name, number in (languages or {}).items() if number == first), None)
        if chosen is None:
            raise self._unsupported_error("forced_bos_token_id")
        return [f"forced_bos_token_id = {first}: --target-language {chosen} chooses it"]

    def ban_tokens(self, rows: VocabularyOrder) -> VocabularyOrder:
        """Adds to rows the tokens that are never written."""
        for name in ("bad_words_ids", "suppress_tokens"):
            if not isinstance(self.values.get(name) or [], list):
                raise self._unsupported_error(name)
        end = [self.values.get("eos_token_id")]  # which the library promises to keep
        words = [word for word in self.values.get("bad_words_ids") or [] if word != end]
        single = self.values.get("suppress_tokens") or []
        if any(not isinstance(word, list) or len(word) != 1 for word in words):
            raise self._unsupported_error("bad_words_ids")
        never = {*(str(word[0]) for word in words), *map(str, single)}
        # the search itself never writes padding, unknown and start
        written = enumerate(rows.foreign[EOS_ID:], EOS_ID)
        places = {place for place, foreign in written if str(foreign) in never}
        return replace(rows, banned=tuple(sorted({*rows.banned, *places})))

    def _unsupported_error(self, name: str) -> ArtifactError:
        value = quote(self.values[name])
        return ArtifactError(
            f"{self.path}: {name} = {value} is not supported; remove it and choose the search here"
        )

    def _number(self, name: str, default: float) -> float:
        value = self.values.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._unsupported_error(name)
        return value

    def read_exported(
        self, settings: Mapping[str, Any], max_positions: int, *, has_source: bool
    ) -> DecodingConfig | None:
        """Returns the search of a model that tformer has exported, unless the files now differ."""
        try:
            decoding = structure(DecodingConfig, settings[OWN]["decoding"])
        except (KeyError, TypeError, StructureError):
            return None
        written = written_search(decoding, max_positions, has_source=has_source)
        is_same = all(self.values.get(name) == value for name, value in written.items())
        return decoding if is_same else None

    def sampling(self, decoding: DecodingConfig) -> DecodingConfig:
        """Returns a search with the settings of sampling, if the files ask for it."""
        if self.values.get("do_sample") is not True:
            return decoding
        shared = {key: value for key, value in self.values.items() if key in SAMPLING.rows}
        SAMPLING.read(self.path, shared)
        try:
            defaults = {**asdict(DecodingConfig()), "top_k": _TOP_K}
            numbers = {
                name: type(defaults[name])(self._number(name, defaults[name])) for name in SAMPLED
            }
            return replace(decoding, sampling=True, **numbers)
        except ValueError as error:
            raise ArtifactError(f"{self.path}: {error}; correct the file") from None

    def search(self, config: ModelConfig) -> tuple[DecodingConfig, list[str]]:
        """Returns the defaults of the search of a translation model, and notes.

        The library counts the start of a translation among its tokens.
        """
        notes = []
        if not self.values.get("renormalize_logits", False):
            notes.append(
                "probabilities are renormalized without tokens that are never written, as newer "
                "versions of such models have it"
            )
        penalty = self._number("length_penalty", 1.0)
        if penalty not in (0.0, 1.0):
            notes.append(f"length_penalty = {quote(penalty)} is taken as 1.0")
        beams = int(self._number("num_beams", 1))
        longest = int(self._number("max_new_tokens", self._number("max_length", 0) - 1))
        shortest = int(self._number("min_new_tokens", self._number("min_length", 0) - 1))
        repetition = float(self._number("repetition_penalty", 1.0))
        if repetition != 1.0:
            notes.append(
                "repetition_penalty is a factor on log-probabilities, as in the library's beam "
                "search; its greedy search applies it to logits"
            )
        has_rules = repetition != 1.0 or shortest > 0 or self.values.get("no_repeat_ngram_size")
        if has_rules and self.values.get("renormalize_logits") and beams > 1:
            notes.append(
                "renormalize_logits: beams are ranked without renormalizing what min_length, "
                "no_repeat_ngram_size, and repetition_penalty leave"
            )
        longest = longest if 0 < longest < config.max_positions else 0
        try:
            decoding = DecodingConfig(
                beam_size=beams if 1 <= beams <= 1000 else 1,
                length_normalization="average" if penalty else "gnmt",
                length_penalty=1.0 if penalty else 0.0,
                max_length=longest,
                min_length=min(max(shortest, 0), longest or config.max_positions - 1),
                no_repeat_ngram=max(int(self._number("no_repeat_ngram_size", 0)), 0),
                repetition_penalty=repetition,
            )
        except ValueError as error:
            raise ArtifactError(f"{self.path}: {error}; correct the file") from None
        return self.sampling(decoding), notes

    def generator(self, max_positions: int) -> tuple[DecodingConfig, list[str]]:
        """Returns the defaults of a language model, which samples, and notes."""
        decoding = DecodingConfig(beam_size=1, sampling=self.values.get("do_sample") is not False)
        chosen = {
            "num_beams": (1, "beam-size"),
            "length_penalty": (1.0, "length-penalty"),
            "max_length": (max_positions, "max-length"),
            "max_new_tokens": (max_positions, "max-length"),
            "min_length": (0, "min-length"),
            "min_new_tokens": (0, "min-length"),
            "no_repeat_ngram_size": (0, "no-repeat-ngram"),
            "repetition_penalty": (1.0, "repetition-penalty"),
        }
        notes = [
            f"{name} = {quote(value)}: chosen by --{option}"
            for name, (neutral, option) in chosen.items()
            if (value := self._number(name, neutral)) != neutral
        ]
        return self.sampling(decoding), notes


def written_search(
    decoding: DecodingConfig, max_positions: int, *, has_source: bool
) -> dict[str, Any]:
    """Returns a search as the library has it; of translations it counts the start, too."""
    longest = {"max_length": min((decoding.max_length or max_positions) + 1, max_positions)}
    if decoding.max_length and not has_source:  # the limit does not count the prompt
        longest = {"max_new_tokens": decoding.max_length}
    is_average = decoding.length_normalization == "average"
    settings: dict[str, Any] = {
        "num_beams": decoding.beam_size,
        "length_penalty": 1.0 if is_average else decoding.length_penalty,
        "no_repeat_ngram_size": decoding.no_repeat_ngram,
        **longest,
    }
    if decoding.min_length:
        settings["min_new_tokens"] = decoding.min_length
    if decoding.repetition_penalty != 1.0:
        settings["repetition_penalty"] = decoding.repetition_penalty
    if decoding.sampling:
        settings |= {name: getattr(decoding, name) for name in SAMPLED}
        settings |= {"do_sample": True, "num_beams": 1}
    return settings


def own_settings(decoding: DecodingConfig) -> dict[str, Any]:
    """Returns the search of an exported model, for config.json, as the library cannot have it."""
    return {OWN: {"decoding": asdict(decoding)}}


def read_generation(
    path: Path, settings: Mapping[str, Any], defaults: Mapping[str, Any] = MappingProxyType({})
) -> Generation:
    file = path / FILE
    files = (file,) if file.is_file() else ()
    if files:
        values = read_json_file(file)
    else:
        file = path / "config.json"
        values = {key: value for key, value in settings.items() if key in GENERATION.rows}
    defaults = {key: value for key, value in defaults.items() if key in GENERATION.rows}
    values = {**defaults, **{key: value for key, value in values.items() if value is not None}}
    return Generation(
        path=file, values=values, notes=tuple(GENERATION.read(file, values)), files=files
    )
