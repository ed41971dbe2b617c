import json
from dataclasses import replace

import pytest

from tests.plugins.serve.fake import FAULTS, Client, FakeService, model
from tformer_cli.plugins.serve.chat import INSTRUCTION, named_languages, read_chat
from tformer_cli.plugins.serve.security import Keys

MANY = replace(model("many"), languages=("en", "fr", "de", "pt", "zh"))


def user(text):
    return {"role": "user", "content": text}


def system(text, role="system"):
    return {"role": role, "content": text}


def ask(text="The house", client=None, before=(), **fields):
    messages = [*before, user(text)]
    body = {"model": "en-fr", "messages": messages, **fields}
    return (client or Client()).post("/v1/chat/completions", json_=body)


def respond(input_="The house", client=None, **fields):
    body = {"model": "en-fr", "input": input_, **fields}
    return (client or Client()).post("/v1/responses", json_=body)


def data_of(answer):
    lines = [line for line in answer.text.split("\n") if line.startswith("data: ")]
    return [json.loads(line[6:]) for line in lines if line != "data: [DONE]"]


def test_the_last_message_of_the_user_is_translated():
    client = Client()
    before = [system("Be kind."), user("before"), {"role": "assistant", "content": "avant"}]
    chat = ask("The house\n\n  \nA dog", client, before).json
    assert chat["object"] == "chat.completion"
    assert chat["model"] == "en-fr"
    assert chat["id"].startswith("chatcmpl-")
    (choice,) = chat["choices"]
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"] == "THE HOUSE\n\n  \nA DOG"
    assert (choice["index"], choice["finish_reason"]) == (0, "stop")
    assert chat["usage"] == {"prompt_tokens": 4, "completion_tokens": 4, "total_tokens": 8}
    (call,) = client.service.calls
    assert (call.name, call.verb, call.texts) == (
        ("en-fr",),
        "translate",
        ["The house", "A dog"],
    )


@pytest.mark.parametrize(
    ("text", "instruction"),
    [
        ("translate: The house", "translate: "),
        ("Translate:The house", "Translate:"),
        ("TRANSLATE :\n\nThe house", "TRANSLATE :\n\n"),
        ("Translate to French: The house", "Translate to French: "),
        (
            "Please translate the following text from English into French:\n\nThe house",
            "Please translate the following text from English into French:\n\n",
        ),
        ("Translate into French, and say nothing else:\nThe house", None),
        ("The house: translate", ""),
        ("Translate this at 10:30 or never", ""),
        ("Translators know: it is hard", ""),
        ("Translate\nthis: now", ""),
        ("A note. Translate: The house", ""),
    ],
)
def test_an_instruction_before_the_text_is_not_translated(text, instruction):
    chat = read_chat([user(text)], "messages")
    if instruction is None:
        assert chat.text == "The house"
    else:
        assert chat.instruction == instruction
    assert chat.instruction + chat.text == text
    assert ask(text).json["choices"][0]["message"]["content"] == chat.text.upper()


def test_an_instruction_is_found_in_little_time():
    assert INSTRUCTION.match("translate" + " translate" * 100_000) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("You are a professional translator.", {}),
        ("Translate to French.", {"target": "French"}),
        ("Translate everything into the german language", {"target": "german"}),
        ("translator from English to Portuguese", {"source": "English", "target": "Portuguese"}),
        (
            "Source language: English\nTarget language: French",
            {"source": "English", "target": "French"},
        ),
        ("target language is German", {"target": "German"}),
        ("Translate what is in French to English", {"source": "French", "target": "English"}),
        ("Translate the user's text in Spanish", {"target": "Spanish"}),
        ("an English-French translator", {"source": "English", "target": "French"}),
        ("Translation: English → French", {"source": "English", "target": "French"}),
        ("Translate. Texts come from Polish newspapers.", {}),
        ("The house is in Danish style; I go to Norwegian schools", {}),
        ("Answer to the point, Frenchman", {}),
    ],
)
def test_languages_are_read_by_their_names(text, words):
    assert named_languages(text) == words


@pytest.mark.parametrize(
    ("text", "before", "word"),
    [
        ("Translate to Klingon: hello", "", "Klingon"),
        ("translate this into klingon:\nhello", "", "klingon"),
        ("Please translate from English to Old Norse: hello", "", "Old Norse"),
        ("Translate from Klingon to French: hello", "", "Klingon"),
        ("Translate from Klingon: hello", "", "Klingon"),
        ("Translate to xx: hello", "", "xx"),
        ("Translate to Klingon: hello", "Translate English to French.", "Klingon"),
        ("hello", "You are kind. Translate what the user says into Klingon.", "Klingon"),
        ("hello", "You translate from Klingon to French", "Klingon"),
        ("Translate to formal German: hello", "", "German"),
        ("hello", "Translate everything to Swiss German.", "German"),
    ],
)
def test_another_language_is_an_error_and_no_other_translation(text, before, word):
    answer = ask(text, before=(system(before),))
    assert answer.status == 400
    message = answer.json["error"]["message"]
    assert message.startswith(f"{word} is not a language") or message.endswith(f", not to {word}")


@pytest.mark.parametrize(
    ("text", "before"),
    [
        ("Translate this to me: hello", ""),
        ("Translate to the target language: hello", ""),
        ("Translate to formal French: hello", ""),
        ("Translate to Canadian French: hello", ""),
        ("Translate to fr: hello", ""),
        ("Translate the text below from English to French, in a kind tone: hello", ""),
        ("hello", "You are a translator. Speak to John and listen to Paris."),
        ("hello", "Translate all that the user says to the best of your knowledge."),
        ("hello", "Translate what belongs to a house."),
        ("hello", "Translate to plain words"),
    ],
)
def test_words_that_name_no_language_change_nothing(text, before):
    client = Client()
    assert ask(text, client, (system(before),)).status == 200
    assert client.service.calls[0].texts == ["hello"]


@pytest.mark.parametrize(
    ("text", "fields", "before", "pair"),
    [
        ("hello", {"target": "fr", "source": "en"}, (), ("en", "fr")),
        ("hello", {"target": "French", "source": "english"}, (), ("en", "fr")),
        ("translate to German: hello", {"source": "en"}, (), ("en", "de")),
        ("translate from en to de: hello", {}, (), ("en", "de")),
        ("hello", {}, (system("Translate from English to French."),), ("en", "fr")),
        ("hello", {}, (system("Translate English to French", "developer"),), ("en", "fr")),
        # The closest phrase wins
        ("translate to German: hello", {}, (system("Translate English to French"),), ("en", "de")),
        ("translate to German: a", {"source": "pt", "target": "fr"}, (), ("pt", "fr")),
        ("translate from English to Chinese: a", {}, (), ("en", "zh")),
    ],
)
def test_a_model_of_many_languages_is_told_which(text, fields, before, pair):
    client = Client(FakeService([MANY]))
    assert ask(text, client, before, model="many", **fields).status == 200
    settings = client.service.calls[0].settings
    assert (settings["source_language"], settings["target_language"]) == pair


def test_a_source_that_nobody_names_is_detected():
    client = Client(FakeService([MANY]))
    client.service.route = lambda source, target: ("many",)
    text = "The old house is green and the garden is large."
    for source in ({}, {"source": "auto"}):
        assert ask(text, client, model="many", target="fr", **source).status == 200
    assert {item.settings["source_language"] for item in client.service.calls} == {"en"}


@pytest.mark.parametrize(
    ("name", "fields", "names"),
    [
        ("en-fr", {}, ("en-fr",)),
        ("en-de", {}, ("en-fr", "fr-de")),
        ("gpt-4o-mini", None, None),
        ("", {"target": "fr"}, ("en-fr",)),
    ],
)
def test_a_model_may_be_a_pair_of_languages(name, fields, names):
    client = Client(FakeService(pivot="fr"))
    answer = ask("The house is old and green.", client, model=name, **(fields or {}))
    if names is None:
        assert answer.status == 404
        assert answer.json["error"]["code"] == "model_not_found"
    else:
        assert client.service.calls[0].name == names
        assert answer.json["model"] == (name or "en-fr")


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"model": "nosuch"}, 404, 'there is no model "nosuch"'),
        ({"model": "lm"}, 400, "lm does not translate, and no model here chats"),
        ({"model": "bert"}, 400, "does not translate"),
        ({"model": 3}, 400, "model: must be text"),
        ({"model": ""}, 400, "target: is missing"),
        ({"messages": None}, 400, "messages: must be a list"),
        ({"messages": []}, 400, "no user message"),
        ({"messages": [system("x")]}, 400, "no user message"),
        ({"messages": [3]}, 400, "messages: must be a list"),
        ({"messages": [user(None)]}, 400, "the content must be text"),
        ({"messages": [user([{"type": "image_url"}])]}, 400, "only text parts are supported"),
        ({"messages": [user(["a"])]}, 400, "only text parts are supported"),
        ({"messages": [user("x" * 5001)]}, 400, "messages: has 5001 characters"),
        ({"messages": [system("Translate into Japanese."), user("a")]}, 400, "Japanese is not"),
        ({"messages": [system("Translate into German."), user("a")]}, 400, "not to German"),
        ({"target": "de"}, 400, "en-fr translates from English to French, not to German"),
        ({"source": "fr"}, 400, "not from French"),
        ({"target": "xx"}, 400, "xx is not a language of this service"),
        ({"target": "x" * 5000}, 400, "x" * 40 + " is not"),
        ({"tools": [{"type": "function"}]}, 400, "tools: is not supported; omit it"),
        ({"stop": ["a"]}, 400, "stop: is not supported"),
        ({"logprobs": True}, 400, "logprobs: is not supported"),
        ({"modalities": ["audio"]}, 400, "modalities: is not supported"),
        ({"response_format": {"type": "json_object"}}, 400, "response_format: is not supported"),
        ({"n": 100}, 400, "n: must be from 1 to 20"),
        ({"max_tokens": 0}, 400, "max_tokens: must be from"),
        ({"stream": "maybe"}, 400, "stream: must be true or false"),
    ],
)  # fmt: skip
def test_what_is_not_possible_is_an_error_object(fields, status, words):
    client = Client()
    answer = ask(client=client, **fields)
    assert answer.status == status
    error = answer.json["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert words in error["message"]
    assert len(error["message"]) < 200
    assert not client.service.calls


def test_fields_that_change_nothing_are_taken():
    more = {
        "temperature": 0.3, "top_p": 1, "seed": 7, "user": "me", "presence_penalty": 0, "tools": [],
        "response_format": {"type": "text"}, "store": False, "metadata": {}, "stop": None,
        "parallel_tool_calls": True, "frequency_penalty": 0, "modalities": ["text"],
    }  # fmt: skip
    client = Client()
    assert ask(client=client, **more).status == 200
    assert client.service.calls[0].settings == {}


def test_parts_of_text_are_one_text():
    parts = [{"type": "text", "text": "The "}, {"type": "text", "text": "house"}]
    assert ask(parts).json["choices"][0]["message"]["content"] == "THE HOUSE"


def test_a_limit_of_tokens_is_one_of_every_line():
    for name in ("max_tokens", "max_completion_tokens"):
        client = Client()
        ask(client=client, **{name: 7})
        assert client.service.calls[0].settings == {"max_length": 7}
    service = FakeService()
    plain = service.result

    def result(*arguments):
        translation = plain(*arguments)
        hypothesis = replace(translation.hypotheses[0], is_finished=False)
        return replace(translation, hypotheses=(hypothesis,))

    service.result = result
    assert ask(client=Client(service)).json["choices"][0]["finish_reason"] == "length"
    cut = respond(client=Client(service)).json
    assert (cut["status"], cut["incomplete_details"]) == (
        "incomplete",
        {"reason": "max_output_tokens"},
    )


def test_several_choices_are_alternatives():
    choices = ask("a\nb", n=2).json["choices"]
    assert [item["message"]["content"] for item in choices] == ["A\nB", "A!\nB!"]
    chunks = data_of(ask("a\nb", n=2, stream=True))
    texts = ["", ""]
    for chunk in chunks:
        (choice,) = chunk["choices"]
        texts[choice["index"]] += choice["delta"].get("content", "")
    assert texts == ["A\nB", "A!\nB!"]


def test_a_stream_is_told_line_by_line():
    answer = ask("The house\r\nA dog\n", stream=True, stream_options={"include_usage": True})
    assert answer.named["content-type"].startswith("text/event-stream")
    assert answer.text.endswith("data: [DONE]\n\n")
    *chunks, last = data_of(answer)
    assert {item["object"] for item in chunks} == {"chat.completion.chunk"}
    assert len({item["id"] for item in (*chunks, last)}) == 1
    deltas = [item["choices"][0]["delta"] for item in chunks]
    assert deltas[0] == {"role": "assistant", "content": "", "refusal": None}
    assert [item.get("content") for item in deltas[1:-1]] == ["THE HOUSE\r\n", "A DOG\n", ""]
    assert [item["choices"][0]["finish_reason"] for item in chunks[-2:]] == [None, "stop"]
    assert {item["usage"] for item in chunks} == {None}
    assert (last["choices"], last["usage"]["total_tokens"]) == ([], 8)
    assert "usage" not in data_of(ask(stream=True))[0]


def test_a_response():
    response = respond("translate: The house", instructions="Translate English to French").json
    assert (response["object"], response["status"]) == ("response", "completed")
    (item,) = response["output"]
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "completed")
    (part,) = item["content"]
    assert (part["type"], part["text"]) == ("output_text", "THE HOUSE")
    assert response["usage"]["total_tokens"] == 4
    messages = [{"role": "user", "content": [{"type": "input_text", "text": "A dog"}]}]
    assert respond(messages).json["output"][0]["content"][0]["text"] == "A DOG"


def test_a_response_is_streamed_as_events():
    events = data_of(respond("The house\nA dog", stream=True))
    kinds = [item["type"].removeprefix("response.") for item in events]
    assert kinds == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta",
        "output_text.delta", "output_text.done", "content_part.done", "output_item.done",
        "completed",
    ]  # fmt: skip
    assert [item["sequence_number"] for item in events] == list(range(len(events)))
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "THE HOUSE\nA DOG"
    assert "".join(item.get("delta", "") for item in events) == "THE HOUSE\nA DOG"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"input": None}, "input: must be a list of messages"),
        ({"previous_response_id": "resp_1"}, "previous_response_id: is not supported"),
        ({"text": {"format": {"type": "json_schema"}}}, "text: is not supported"),
        ({"instructions": "Translate into German."}, "not to German"),
        ({"instructions": 3}, "instructions: must be text"),
        ({"background": True}, "background: is not supported"),
    ],
)
def test_responses_that_are_not_possible(fields, words):
    answer = respond(**fields)
    assert answer.status == 400
    assert words in answer.json["error"]["message"]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("ask_chat", [ask, respond])
def test_faults_before_the_first_word_have_their_status(fault, is_streamed, ask_chat):
    service = FakeService()
    service.fails, status = FAULTS[fault]
    answer = ask_chat(client=Client(service), stream=is_streamed)
    assert answer.status == status
    assert set(answer.json["error"]) == {"message", "type", "param", "code"}
    assert ("retry-after" in answer.named) is (status in (429, 503))


@pytest.mark.parametrize("ask_chat", [ask, respond])
def test_a_fault_within_a_stream_is_told_as_an_event(ask_chat, capsys):
    service = FakeService()
    service.break_behind_the_first()
    answer = ask_chat("a\nb", Client(service), stream=True)
    events = data_of(answer)
    error = events[-1].get("error", events[-1])
    assert error["message"] == "the service failed; its operator can see why"
    assert "completed" not in answer.text
    assert '"stop"' not in answer.text
    assert "/secret" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_keys_are_asked_for(path):
    client = Client(keys=Keys(["k" * 16]))
    body = {"model": "en-fr", "messages": [user("a")], "input": "a"}
    assert client.post(path, json_=body).json["error"]["code"] == "missing_api_key"
    right = {"authorization": "Bearer " + "k" * 16}
    assert client.post(path, json_=body, headers=right).status == 200
