import base64
import json

import numpy as np
import pytest

from tests.plugins.serve.fake import Client, FakeService
from tformer_cli.search.generator import GeneratedText, Generation

PROMPT = {"model": "lm", "prompt": "The old"}


def complete(client=None, **fields):
    return (client or Client()).post("/v1/completions", json_={**PROMPT, **fields})


def test_models_are_listed():
    client = Client()
    listing = client.get("/v1/models").json
    assert listing["object"] == "list"
    assert [model["id"] for model in listing["data"]] == ["en-fr", "fr-de", "lm", "bert", "stars"]
    assert listing["data"][2] == client.get("/v1/models/lm").json
    assert set(listing["data"][2]) == {"id", "object", "created", "owned_by"}
    assert client.get("/v1/models/nosuch").json["error"]["code"] == "model_not_found"


def test_a_completion():
    client = Client()
    fields = {"n": 2, "max_tokens": 2, "temperature": 0.5, "top_p": 0.9, "seed": 3, "stop": "\n"}
    completion = complete(client, **fields).json
    assert completion["object"] == "text_completion"
    assert completion["model"] == "lm"
    assert completion["id"].startswith("cmpl-")
    assert completion["choices"] == [
        {"index": n, "text": f" and {n}", "logprobs": None, "finish_reason": "stop"}
        for n in range(2)
    ]
    assert completion["usage"] == {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11}
    (call,) = client.service.calls
    assert (call.name, call.verb, call.texts) == ("lm", "generate", ["The old"])
    assert call.settings == {
        "max_length": 2, "n_best": 2, "seed": 3, "stops": ("\n",), "temperature": 0.5,
        "top_p": 0.9, "sampling": True,
    }  # fmt: skip


def test_temperature_zero_searches():
    client = Client()
    assert complete(client, temperature=0).status == 200
    assert client.service.calls[0].settings == {
        "max_length": 16, "sampling": False, "beam_size": 1,
    }  # fmt: skip


def test_the_model_may_be_left_out_if_there_is_one():
    assert Client().post("/v1/completions", json_={"prompt": "a"}).json["model"] == "lm"


def test_choices_of_several_prompts_are_numbered():
    completion = complete(prompt=["a", "b"], n=2).json
    assert [choice["index"] for choice in completion["choices"]] == [0, 1, 2, 3]


def test_why_a_text_ends():
    service = FakeService()

    def result(verb, index, text, settings):
        texts = ((" a", (1, 2, 3), False), (" b", (1,), False), (" c", (1,), True))
        return Generation(
            index, text, tuple(GeneratedText(t, ids, -1.0, -1.0, end) for t, ids, end in texts)
        )

    service.result = result
    choices = complete(Client(service), max_tokens=3).json["choices"]
    # The length limit, a stop text, and the end of the text
    assert [choice["finish_reason"] for choice in choices] == ["length", "stop", "stop"]


def test_a_stream_has_a_choice_an_event():
    answer = complete(prompt=["a", "b"], stream=True)
    assert answer.named["content-type"].startswith("text/event-stream")
    *events, last, end = answer.text.split("\n\n")
    assert (last, end) == ("data: [DONE]", "")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    assert [chunk["choices"][0]["index"] for chunk in chunks] == [0, 1]
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_a_stream_of_one_text_is_told_in_parts():
    *events, _, _ = complete(stream=True).text.split("\n\n")
    choices = [json.loads(event.removeprefix("data: "))["choices"][0] for event in events]
    (whole,) = complete().json["choices"]
    assert len(choices[0]["text"]) == 2
    assert "".join(choice["text"] for choice in choices) == whole["text"]
    assert [choice["finish_reason"] for choice in choices] == [None, whole["finish_reason"]]
    # Texts that are ranked at the end are not streamed
    *events, _, _ = complete(stream=True, n=2).text.split("\n\n")
    assert json.loads(events[0].removeprefix("data: "))["choices"][0]["finish_reason"]


def test_a_problem_within_a_stream_is_its_last_event(capsys):
    service = FakeService()
    service.break_behind_the_first()
    first, error, *end = complete(Client(service), prompt=["a", "b"], stream=True).text.split(
        "\n\n"
    )
    assert '"choices"' in first
    error = json.loads(error.removeprefix("data: "))["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"] == "the service failed; its operator can see why"
    assert end == ["data: [DONE]", ""]
    assert capsys.readouterr().err == "error: serve: RuntimeError: /secret\n"


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"model": "nosuch"}, 404, "there is no model"),
        ({"model": "bert"}, 404, "there is no model"),
        ({"model": "en-fr"}, 400, "en-fr is a translation model"),
        ({"model": 3}, 400, "model: must be text"),
        ({"prompt": None}, 400, "prompt: is missing"),
        ({"prompt": [1, 2]}, 400, "token ids are not supported"),
        ({"prompt": [[1], [2]]}, 400, "token ids are not supported"),
        ({"prompt": {"a": 1}}, 400, "prompt: must be text"),
        ({"prompt": "x" * 5001}, 400, "5001 characters"),
        ({"prompt": ["x"] * 129}, 400, "129 texts"),
        ({"max_tokens": 10**9}, 400, "max_tokens: must be from 1 to 4096"),
        ({"max_tokens": 0}, 400, "max_tokens: must be from 1 to 4096"),
        ({"n": 100}, 400, "n: must be from 1 to 20"),
        ({"temperature": 3}, 400, "temperature: must be from 0 to 2"),
        ({"top_p": 0}, 400, "top_p: must be from"),
        ({"seed": -1}, 400, "seed: must be from"),
        ({"stop": ["a"] * 5}, 400, "stop: must be at most 4"),
        ({"stop": [""]}, 400, "stop: must be at most 4"),
        ({"logprobs": 2}, 400, "logprobs: is not supported"),
        ({"echo": True}, 400, "echo: is not supported"),
        ({"best_of": 3}, 400, "best_of: is not supported"),
        ({"stream": "maybe"}, 400, "stream: must be true or false"),
    ],
)
def test_what_is_not_possible_is_an_error_object(fields, status, words):
    client = Client()
    answer = complete(client, **fields)
    assert answer.status == status
    error = answer.json["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert words in error["message"]
    assert error["type"] == "invalid_request_error"
    assert not client.service.calls


def test_fields_that_change_nothing_are_taken():
    more = {"echo": False, "frequency_penalty": 0, "logit_bias": {}, "best_of": 1, "user": "me"}
    assert complete(**more).status == 200


def embeddings(**fields):
    return Client().post("/v1/embeddings", json_={"model": "bert", "input": "hello", **fields})


def test_embeddings():
    response = embeddings(input=["hello", "a"]).json
    assert response["object"] == "list"
    assert response["data"] == [
        {"object": "embedding", "index": 0, "embedding": [5.0, 0.5, -1.0]},
        {"object": "embedding", "index": 1, "embedding": [1.0, 0.5, -1.0]},
    ]
    assert response["usage"] == {"prompt_tokens": 6, "total_tokens": 6}
    (item,) = embeddings(encoding_format="base64", dimensions=3).json["data"]
    assert np.frombuffer(base64.b64decode(item["embedding"]), "<f4").tolist() == [5.0, 0.5, -1.0]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"input": ""}, "a text is blank"),
        ({"input": ["a", " "]}, "a text is blank"),
        ({"input": []}, "input: is missing"),
        ({"input": [1, 2]}, "token ids are not supported"),
        ({"encoding_format": "hex"}, "encoding_format: must be"),
        ({"dimensions": 2}, "dimensions: must be 3"),
        ({"model": ""}, "model: is missing; there are bert, stars"),
    ],
)
def test_embeddings_that_are_not_possible(fields, words):
    answer = embeddings(**fields)
    assert answer.status == 400
    assert words in answer.json["error"]["message"]


def test_the_second_dialect_of_vectors():
    client = Client()
    answer = client.post("/embed", json_={"inputs": ["hello"], "model": "bert"})
    assert answer.json == [[5.0, 0.5, -1.0]]
    assert client.service.calls[0].settings == {"unit_length": True}
    plain = {"inputs": "a", "normalize": False, "model": "bert"}
    assert client.post("/embed", json_=plain).json == [[1.0, 0.5, -1.0]]
    assert client.service.calls[1].settings == {"unit_length": False}
    assert client.post("/embed", json_={"inputs": ["a", ""], "model": "bert"}).status == 400
