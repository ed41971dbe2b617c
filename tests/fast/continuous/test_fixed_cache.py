import torch

from tformer_cli.fast.continuous.fixed_cache import FixedCache

N_PLACES, BEAM_SIZE, ROOM = 3, 2, 8


def start(model, source, source_mask, room=ROOM):
    with torch.inference_mode():
        memory = model.encode(source, source_mask)
        cache = FixedCache.empty(model, N_PLACES, BEAM_SIZE, room, memory)
        cache.put(model, torch.arange(len(source)), memory, source_mask)
    return cache


def decode(model, cache, tokens):
    """(P, W) tokens to logits (P, W, V); every slot goes on, each place by a position."""
    with torch.inference_mode():
        logits = model.decode_step(tokens.flatten(), cache)
        slots = torch.arange(BEAM_SIZE).expand(N_PLACES, -1)
        cache.follow(slots, torch.ones(N_PLACES, dtype=torch.bool))
    return logits.view(N_PLACES, BEAM_SIZE, -1)


def expected(model, source, source_mask, place, tokens):
    """Logits (V) behind a prefix, by the whole decoder."""
    row = slice(place, place + 1)
    with torch.inference_mode():
        return model(source[row], source_mask[row], torch.tensor([tokens]))[0, -1]


def test_each_slot_sees_its_own_past_alone(make_model, sentences):
    source, source_mask, target = sentences
    model = make_model(decoder_heads=(4, 2, 1), cross_heads=(4, 0, 2))
    cache = start(model, source, source_mask)
    prefixes = [[[int(t)] for t in target[place, :BEAM_SIZE]] for place in range(N_PLACES)]
    for step in range(4):
        logits = decode(model, cache, torch.tensor(prefixes)[:, :, -1])
        for place in range(N_PLACES):
            for slot in range(BEAM_SIZE):
                torch.testing.assert_close(
                    logits[place, slot],
                    expected(model, source, source_mask, place, prefixes[place][slot]),
                    rtol=1e-4,
                    atol=1e-4,
                )
                prefixes[place][slot].append(int(target[place, slot + step]))


def test_places_are_at_positions_of_their_own_and_slots_change(make_model, sentences):
    source, source_mask, target = sentences
    model = make_model(positions="learned")
    cache = start(model, source, source_mask)
    first, second, third = target[:, :2], target[:, 2:4], target[:, 3:5]
    decode(model, cache, first)
    with torch.inference_mode():
        model.decode_step(second.flatten(), cache)
        # both slots go on with the second one's past; the first place stays where it is
        slots = torch.ones(N_PLACES, BEAM_SIZE, dtype=torch.int64)
        cache.follow(slots, torch.tensor([False, True, True]))
        # and another sentence takes the last place
        memory = model.encode(source[:1], source_mask[:1])
        cache.put(model, torch.tensor([2]), memory, source_mask[:1])
    assert cache.positions.tolist() == [1, 2, 0]
    logits = decode(model, cache, third)
    for slot in range(BEAM_SIZE):
        past = [int(first[1, 1]), int(second[1, 1]), int(third[1, slot])]
        for place, sentence, prefix in ((1, 1, past), (2, 0, past[2:])):
            prefix = [*prefix[:-1], int(third[place, slot])]
            torch.testing.assert_close(
                logits[place, slot],
                expected(model, source, source_mask, sentence, prefix),
                rtol=1e-4,
                atol=1e-4,
            )
