"""Episodes of pictures: pure, addressable, balanced as asked; the impossible is refused first."""

import numpy as np
import pytest
import torch

from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.core.types import RaggedBatch
from innerloop.data.augment import Augmentation, augment, colour_jitter, episode_transform, lee2019, pad_crop
from innerloop.data.glyphs import glyphs
from innerloop.learners import episodic, maml, protonet
from innerloop.nets import conv4
from innerloop.tasks.episodes import Kind, first_by_key
from innerloop.tasks.few_shot import few_shot_sampler
from innerloop.tasks.loading import image_loader
from innerloop.tasks.supervised import supervised_sampler, with_rotations
from innerloop.testing import check_learner, check_tasks
from innerloop.testing.closeness import CHAINED, LAST_BITS, ROUNDED, SINGLE_BITS, SUMMED
from innerloop.training import Plan, map_tasks, meta_gradient

EASY = Kind(5, 1, 3, "across-groups", name="easy")
HARD = Kind(5, 1, 3, "one-group", name="hard")


@pytest.fixture(scope="module")
def source():
    return glyphs()


def class_of(name):
    return name.rpartition("/")[0]


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("kinds", [None, (EASY, HARD)])
def test_episodes_are_pure_and_addressable(source, balanced, kinds):
    check_tasks(few_shot_sampler(source, "train", seed=3, shots=2, queries=3, kinds=kinds, balanced=balanced))


def test_blocks_of_rows_change_nothing(source):
    sampler = few_shot_sampler(source, "train", seed=1, queries=2)
    scattered = sampler.episodes([500, 3, 130, 127, 128])
    for place, i in enumerate([500, 3, 130, 127, 128]):
        assert torch.equal(scattered.x_query[place], sampler.episode(i).x_query)


def test_pictures_are_those_of_the_named_files(source):
    sampler = few_shot_sampler(source, "test", seed=0, shots=2, queries=4)
    task, names = sampler.episode(9), sampler.files(9)
    by_name = {source.files(row): row for row in range(len(source.images))}
    for part, x, y in (("support", task.x_support, task.y_support), ("query", task.x_query, task.y_query)):
        for picture, label, name in zip(x, y.tolist(), names[part], strict=True):
            assert class_of(name) == names["classes"][label]
            expected = torch.from_numpy(source.images[by_name[name]].copy()).permute(2, 0, 1) / 255
            assert torch.allclose(picture, expected)
    assert not set(names["support"]) & set(names["query"])
    allowed = {source.class_names[c] for c in source.splits["test"]}
    assert set(names["classes"]) <= allowed


def test_every_class_and_picture_is_drawn_equally_often(source):
    sampler = few_shot_sampler(source, "validation", seed=0, ways=5, shots=1, queries=1)
    batch = sampler.episodes(range(4000))
    counts = torch.bincount(batch.id.flatten(), minlength=80).double()
    expected = 4000 * 5 / 80
    # hypergeometric within an episode: variance below binomial; five standard deviations
    assert (counts - expected).abs().max() < 5 * np.sqrt(expected)
    orders = batch.id[:, 0] < batch.id[:, 1]
    assert abs(orders.double().mean() - 0.5) < 5 * 0.5 / np.sqrt(4000)


def test_splits_share_no_class_and_seeds_differ(source):
    train, test = (few_shot_sampler(source, split, seed=0) for split in ("train", "test"))
    assert not {class_of(f) for i in range(20) for f in train.files(i)["support"]} & {
        class_of(f) for i in range(20) for f in test.files(i)["support"]
    }
    other = few_shot_sampler(source, "train", seed=1)
    assert train.files(0) != other.files(0)


def test_hard_tasks_stay_in_one_alphabet_and_easy_ones_do_not(source):
    sampler = few_shot_sampler(source, "train", seed=0, kinds=(EASY, HARD._replace(share=3.0)))
    seen = {"easy": 0, "hard": 0}
    for i in range(200):
        files = sampler.files(i)
        alphabets = {name.split("/")[0] for name in files["classes"]}
        seen[files["kind"]] += 1
        assert len(alphabets) == (1 if files["kind"] == "hard" else 5)
    assert 120 <= seen["hard"] <= 180  # 150 expected, five standard deviations are 31


def test_chosen_alphabets_only(source):
    hard = HARD._replace(groups=("alphabet03", "alphabet07"))
    sampler = few_shot_sampler(source, "train", seed=0, kinds=(hard,))
    names = {name.split("/")[0] for i in range(30) for name in sampler.files(i)["classes"]}
    assert names == {"alphabet03", "alphabet07"}


def test_same_alphabet_tasks_are_harder_for_raw_pixels(source):
    def accuracy(kind):
        sampler = few_shot_sampler(source, "all", seed=0, kinds=(kind,))
        batch = sampler.episodes(range(600))
        s, q = (torch.nn.functional.normalize(x.flatten(2), dim=-1) for x in (batch.x_support, batch.x_query))
        return ((q @ s.mT).argmax(-1) == batch.y_query).double().mean()

    assert accuracy(EASY) - accuracy(HARD) > 0.05


def test_unbalanced_support_keeps_total_and_every_class(source):
    sampler = few_shot_sampler(source, "train", seed=0, ways=5, shots=3, queries=2, balanced=False)
    batch = sampler.episodes(range(200))
    shots = torch.stack([(batch.y_support == w).sum(1) for w in range(5)], 1)
    assert (shots.sum(1) == 15).all()
    assert shots.min() >= 1
    assert shots.max() > 4
    assert (torch.stack([(batch.y_query == w).sum(1) for w in range(5)], 1) == 2).all()
    names = sampler.files(7)
    assert not set(names["support"]) & set(names["query"])


def test_mixed_shapes_make_ragged_batches_that_train_alike_in_every_mode(source):
    kinds = (Kind(2, 3, 2), Kind(4, 1, 3))
    sampler = few_shot_sampler(source, "train", seed=0, kinds=kinds, dtype=torch.float64)
    batch = sampler.batch(0, 6)
    assert isinstance(batch, RaggedBatch)
    assert {len(task.y_support) for task in batch.tasks()} == {6, 4}
    for i, task in enumerate(batch.tasks()):
        assert torch.equal(task.x_query, sampler.episode(i).x_query)
    net = conv4(1, 28, 4, filters=4, norm="group")
    params = {k: v.double() for k, v in net.init(torch.Generator().manual_seed(0))[0].items()}
    loss = get_loss("cross-entropy")
    objective = episodic(maml(net, loss, 0.1, 1), loss)
    looped = meta_gradient(objective.loss, Plan("loop"))(params, {}, batch)
    for plan in (Plan("threads", 2), Plan("vmap"), Plan("vmap", chunk=2)):
        other = meta_gradient(objective.loss, plan)(params, {}, batch)
        assert torch.allclose(other.losses, looped.losses, rtol=SUMMED)
        for name in params:
            assert torch.allclose(other.grads[name], looped.grads[name], rtol=CHAINED, atol=ROUNDED)
    means = [
        map_tasks(lambda p, b, t: t.x_query.mean(), plan)({}, {}, batch)
        for plan in (Plan("loop"), Plan("vmap"))
    ]
    assert torch.allclose(*means)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ways": 401}, "Lower ways to 400"),
        ({"shots": 10, "queries": 15}, "Lower queries to 10"),
        ({"shots": 25, "queries": 5}, "Lower shots to 15"),
        ({"kinds": (Kind(21, 1, 1, "across-groups"),)}, "lower ways to 20"),
        ({"kinds": (Kind(21, 1, 1, "one-group"),)}, "lower ways"),
        ({"kinds": (HARD._replace(groups=("alphabet3",)),)}, "did you mean 'alphabet"),
    ],
)
def test_what_cannot_be_sampled_is_refused_with_the_fix(source, options, message):
    with pytest.raises(UserError, match=message):
        few_shot_sampler(source, "train", seed=0, **options)


def test_unknown_split(source):
    with pytest.raises(UserError, match="did you mean 'train'"):
        few_shot_sampler(source, "trian", seed=0)


def test_rotations_are_classes(source):
    turned = with_rotations(source)
    assert turned.n_classes == 4 * source.n_classes
    row = int(turned.starts[source.n_classes + 7]) + 2  # class 7 turned by 90°
    original = source.images[source.starts[7] + 2]
    assert np.array_equal(turned.images[row], np.rot90(original, 1))
    assert turned.files(row) == source.files(int(source.starts[7]) + 2) + "#90"
    assert (turned.counts == 20).all()


def test_glyphs_are_deterministic_and_large_enough(source):
    again = glyphs.__wrapped__()
    assert again.content_sha256 == source.content_sha256
    assert len(source.group_names) >= 20
    assert source.n_classes // len(source.group_names) >= 20
    assert source.counts.min() >= 20
    assert glyphs.__wrapped__(seed=1).content_sha256 != source.content_sha256


def test_supervised_minibatches_visit_every_picture_once_a_pass(source):
    sampler = supervised_sampler(source, "validation", seed=0, size=40)
    pictures, step = 80 * 20, 1600 // 40
    batch = sampler.episodes(range(step))
    assert torch.bincount(batch.y_support.flatten(), minlength=80).tolist() == [20] * 80
    sums = batch.x_support.flatten(0, 1).flatten(1).sum(1)
    assert len(sums) == pictures
    again = sampler.episodes(range(step, 2 * step))
    assert not torch.equal(again.y_support, batch.y_support)


def test_standardised_pictures(source):
    plain = few_shot_sampler(source, "train", seed=0).episode(0)
    scaled = few_shot_sampler(source, "train", seed=0, mean=[0.1], std=[0.5]).episode(0)
    assert torch.allclose(scaled.x_query, (plain.x_query - 0.1) / 0.5)


# augmentation


def test_pad_crop_shifts_by_whole_pixels():
    x = torch.rand(2, 3, 8, 8)
    out = pad_crop(x, torch.tensor([2, 4]), torch.tensor([2, 0]), pad=2)
    assert torch.equal(out[0], x[0])  # offset pad: where it was
    assert torch.equal(out[1, :, 2:, :-2], x[1, :, :-2, 2:])
    assert (out[1, :, :2] == 0).all()
    assert (out[1, :, :, -2:] == 0).all()


def test_colour_jitter_equals_pillow():
    from PIL import Image, ImageEnhance

    rng = np.random.default_rng(0)
    pixels = rng.integers(40, 200, (16, 16, 3), dtype=np.uint8)
    picture = Image.fromarray(pixels)
    for enhance, place in ((ImageEnhance.Brightness, 0), (ImageEnhance.Contrast, 1), (ImageEnhance.Color, 2)):
        factors = [torch.ones(1), torch.ones(1), torch.ones(1)]
        factors[place] = torch.tensor([1.3])
        ours = colour_jitter(torch.from_numpy(pixels).permute(2, 0, 1)[None] / 255, *factors)
        theirs = np.asarray(enhance(picture).enhance(1.3), dtype=np.float32) / 255
        # Pillow rounds the grey value and the result to whole numbers
        assert np.abs(ours[0].permute(1, 2, 0).numpy() - theirs).max() < 2.5 / 255


def test_augmentation_is_off_at_strength_zero_and_flips_half():
    x = torch.rand(400, 1, 8, 8)
    numbers = list(range(400))
    assert torch.equal(augment(x, numbers, 0, Augmentation(0, 0, 0, 0, 0)), x)
    flipped = augment(x, numbers, 0, Augmentation(0, 0.5, 0, 0, 0))
    same = (flipped == x).all((1, 2, 3)).double().mean()
    assert abs(same - 0.5) < 5 * 0.5 / 20
    assert torch.equal(torch.minimum(flipped, flipped.flip(-1)), torch.minimum(x, x.flip(-1)))


def test_augmented_episodes_stay_pure(source):
    transform = episode_transform(5, lee2019(28))
    check_tasks(few_shot_sampler(source, "train", seed=0, queries=3, transform=transform))
    plain = few_shot_sampler(source, "train", seed=0, queries=3).episode(0)
    moved = few_shot_sampler(source, "train", seed=0, queries=3, transform=transform).episode(0)
    assert not torch.equal(plain.x_query, moved.x_query)


# prototypes


def test_protonet_conforms_and_equals_distances_to_class_means(source):
    net = conv4(1, 28, 5, filters=4, norm="group")
    params, buffers = net.init(torch.Generator().manual_seed(0))
    batch = few_shot_sampler(source, "train", seed=0, shots=2, queries=3, dtype=torch.float64).batch(0, 2)
    learner = protonet(net, 5)
    check_learner(learner, params, buffers, batch, loss="cross-entropy", exact_gradient=False)
    params = {k: v.double() for k, v in params.items()}
    task = batch.task(0)
    logits, _ = learner.predict(learner.adapt(params, buffers, task.x_support, task.y_support), task.x_query)
    zs, zq = (net.features(params, buffers, x, "batch")[0] for x in (task.x_support, task.x_query))
    means = torch.stack([zs[task.y_support == w].mean(0) for w in range(5)])
    expected = -torch.cdist(zq, means).square()
    assert torch.allclose(logits.log_softmax(-1), expected.log_softmax(-1), rtol=CHAINED, atol=CHAINED)


def test_protonet_never_predicts_a_class_without_support():
    net = conv4(1, 28, 5, filters=4, norm="none")
    params, buffers = net.init(torch.Generator().manual_seed(0))
    learner = protonet(net, 5)
    x = torch.rand(6, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    adapted = learner.adapt(params, buffers, x[:3], torch.tensor([0, 1, 3]))
    logits, _ = learner.predict(adapted, x[3:])
    assert set(logits.argmax(-1).tolist()) <= {0, 1, 3}
    assert torch.isfinite(torch.nn.functional.cross_entropy(logits, torch.tensor([0, 1, 3])))


@pytest.mark.parametrize(
    ("shape", "count"),
    [
        ((7, 1028), 5),
        ((3, 5, 600), 20),
        ((4, 20), 16),
        ((4, 20), 20),
        ((2, 65), 65),
        ((2, 65), 7),
        ((1, 5000), 1),
    ],
)
def test_the_smallest_keys_are_those_of_a_full_sort(shape, count):
    keys = np.random.default_rng(0).integers(0, 2**64, shape, dtype=np.uint64)
    assert np.array_equal(first_by_key(keys, count), np.argsort(keys, axis=-1)[..., :count])
    padded = keys.copy()
    padded[..., count:] = np.uint64(2**64 - 1)  # as classes with few pictures have it
    assert np.array_equal(first_by_key(padded, count), np.argsort(padded[..., :count], axis=-1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_are_bytes_over_255(source, channels, dtype):
    from innerloop.data.arrays import from_arrays

    pixels = np.random.default_rng(0).integers(0, 256, (6, 9, 9, channels), dtype=np.uint8)
    made = from_arrays(pixels, [0, 0, 0, 1, 1, 1])
    x = image_loader(made, dtype)(np.array([[5, 0], [2, 2]]))
    assert x.dtype == dtype
    expected = torch.from_numpy(pixels[[5, 0, 2, 2]]).permute(0, 3, 1, 2).double() / 255
    tolerance = {torch.float32: SINGLE_BITS, torch.float64: LAST_BITS, torch.bfloat16: 4e-3}[dtype]
    torch.testing.assert_close(x.double(), expected.view(2, 2, channels, 9, 9), rtol=0, atol=tolerance)


@pytest.mark.parametrize("augmented", [False, True])
def test_an_episode_alone_is_the_one_of_the_batch(source, augmented):
    transform = episode_transform(4, lee2019(28)) if augmented else None
    scaled = {"mean": [0.2], "std": [0.3], "dtype": torch.float64}
    for balanced in (True, False):
        sampler = few_shot_sampler(
            source, "train", seed=1, shots=2, queries=3, transform=transform, balanced=balanced, **scaled
        )
        batch = sampler.episodes([126, 127, 128, 400])
        for place, i in enumerate([126, 127, 128, 400]):
            for one, same in zip(sampler.episode(i), batch.task(place), strict=True):
                assert torch.equal(one, same)
                assert one.dtype == same.dtype
