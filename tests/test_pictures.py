"""Pictures that a flow in training writes."""

import keras
import numpy as np
import pytest
from matplotlib.image import imread
from models import digits_flow, small_flow

from tfp_flowify.callbacks import SampleGrid
from tfp_flowify.data import digits
from tfp_flowify.plots import save_densities, tile_images


@pytest.mark.slow
def test_grids_are_written_each_few_epochs_and_at_the_end(tmp_path):
    flow, x = digits_flow(), digits()[0][0][:40]
    flow.compile("adam")
    flow.fit(x, epochs=5, verbose=0, callbacks=[SampleGrid(tmp_path / "grids", x, every=2, count=9)])
    names = [f"epoch_{epoch:04d}.png" for epoch in (2, 4, 5)]
    assert sorted(path.name for path in (tmp_path / "grids").iterdir()) == names
    first, last = (imread(tmp_path / "grids" / name) for name in (names[0], names[-1]))
    assert first.shape == last.shape
    width = first.shape[1] // 4
    assert not np.array_equal(first[:, :width], last[:, :width])  # Samples of another flow.
    np.testing.assert_array_equal(first[:, 2 * width : 3 * width], last[:, 2 * width : 3 * width])  # The same data.
    assert np.ptp(first[:, 2 * width : 3 * width]) > 0.9  # From black to white.


def test_without_data_there_are_samples_alone(tmp_path):
    flow = digits_flow()
    flow.compile("adam", run_eagerly=True)
    flow.fit(digits()[0][0][:8], verbose=0, callbacks=[SampleGrid(tmp_path, count=4)])
    assert (tmp_path / "epoch_0001.png").stat().st_size > 1000


def test_tiles_keep_their_place():
    images = np.arange(3.0)[:, None, None, None] * np.ones([3, 2, 2, 1])
    grid = tile_images(images, columns=2, border=1)[..., 0]
    assert grid.shape == (7, 7)
    assert (grid[1, 1], grid[1, 4], grid[4, 1]) == (0, 1, 2)
    assert np.isnan(grid[4, 4]) and np.isnan(grid[0]).all()


def test_what_is_no_image_is_named(tmp_path):
    flow = small_flow()
    flow.compile("adam", run_eagerly=True)
    with pytest.raises(ValueError, match=r"flows of images.*\(3,\)"):
        flow.fit(np.zeros([4, 3], "float32"), verbose=0, callbacks=[SampleGrid(tmp_path)])
    with pytest.raises(ValueError, match=r"shape=\(4, 8, 8\)"):
        tile_images(np.zeros([4, 8, 8]))
    with pytest.raises(ValueError, match="every=0"):
        SampleGrid(tmp_path, every=0)
    assert isinstance(SampleGrid(tmp_path), keras.callbacks.Callback)


def test_densities_of_points(tmp_path):
    points = np.random.default_rng(0).normal(size=(50, 2))
    save_densities(tmp_path / "d.png", {"normal": lambda x: -0.5 * np.sum(x**2, axis=1)}, points, size=30)
    picture = imread(tmp_path / "d.png")
    assert picture.shape[1] > 1.5 * picture.shape[0] and picture[..., 0].std() > 0.1
    with pytest.raises(ValueError, match=r"\(n, 2\). Received: shape=\(50, 3\)"):
        save_densities(tmp_path / "d.png", {}, np.zeros([50, 3]))
