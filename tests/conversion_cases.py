"""The one registry of Keras layers that `flowify` converts: a layer, or a function of tensors, and what it takes."""

import keras
import numpy as np

kl = keras.layers
ops = keras.ops


def branches(join, count=2):
    """Several dense branches of one input, joined."""

    def build(x):
        return join([kl.Dense(4)(x) for _ in range(count)])

    return build


def squeeze_and_excite(x):
    gate = kl.GlobalAveragePooling2D(keepdims=True)(x)
    gate = kl.Conv2D(2, 1, activation="relu")(gate)
    return kl.Multiply()([x, kl.Conv2D(3, 1, activation="sigmoid")(gate)])


def nested(x):
    inner = keras.Sequential([kl.Dense(4), kl.LeakyReLU(), kl.Dense(3)])
    return kl.Dense(2)(inner(x))


def attention(x):
    return kl.MultiHeadAttention(2, 2)(x, x)


def used_twice(x):
    """One layer with weights and one without, each called twice."""
    dense, activation = kl.Dense(5, name="shared"), kl.LeakyReLU()
    return activation(dense(activation(dense(x))))


def two_models_of_the_same_names(x):
    """Models whose layers have the same names, one of them with two inputs and called by their names."""
    first = keras.Sequential([keras.Input([5]), kl.Dense(4, name="dense")])
    b, a = keras.Input([4], name="b"), keras.Input([4], name="a")
    second = keras.Model([b, a], kl.Subtract()([b, kl.Dense(4, name="dense")(a)]))
    h = first(x)
    return second({"a": h, "b": kl.LeakyReLU()(h)})


def adapted(x):
    """A normalization that has measured its numbers, one of them of a constant column."""
    layer = kl.Normalization()
    data = np.random.default_rng(0).normal(5.0, 1e3, size=(50, 5))
    data[:, 1] = 2.0
    layer.adapt(data)
    return layer(x)


class WithOwnName(kl.Dense):
    """A subclass that changes nothing."""

    def __init__(self, units, **kwargs):
        super().__init__(units, **kwargs)


def last_state(x):
    _, state, _ = kl.LSTM(3, return_state=True)(x)
    return state


def masked(x):
    return kl.LSTM(3)(kl.Masking(mask_value=-100.0)(x))


IMAGE, VECTOR, SEQUENCE, VOLUME = (6, 5, 3), (5,), (6, 3), (4, 4, 3, 2)

ACTIVATIONS = (
    *("celu", "elu", "exponential", "gelu", "hard_shrink", "hard_sigmoid", "hard_silu", "hard_tanh", "leaky_relu"),
    *("linear", "log_sigmoid", "log_softmax", "mish", "relu", "relu6", "selu", "silu", "soft_shrink", "softplus"),
    *("softsign", "sparse_plus", "sparse_sigmoid", "sparsemax", "squareplus", "tanh", "tanh_shrink"),
)

CASES = {
    "dense": (lambda: kl.Dense(3), VECTOR),
    "dense_more": (lambda: kl.Dense(8, activation="relu"), VECTOR),
    "dense_no_bias": (lambda: kl.Dense(5, use_bias=False), VECTOR),
    "dense_on_sequences": (lambda: kl.Dense(2, "tanh"), SEQUENCE),
    "dense_wide": (lambda: kl.Dense(140), (130,)),
    "einsum_dense": (lambda: kl.EinsumDense("abc,cd->abd", (6, 4), bias_axes="d"), SEQUENCE),
    "einsum_heads": (lambda: kl.EinsumDense("abc,cde->abde", (6, 2, 2), bias_axes="de"), SEQUENCE),
    "einsum_joined": (lambda: kl.EinsumDense("abcd,cde->abe", (4, 4), bias_axes="e"), (4, 3, 2)),
    "einsum_other": (lambda: kl.EinsumDense("abc,bd->adc", (4, 3)), SEQUENCE),
    "conv1d": (lambda: kl.Conv1D(4, 3), SEQUENCE),
    "conv1d_causal": (lambda: kl.Conv1D(2, 3, padding="causal", dilation_rate=2), SEQUENCE),
    "conv2d": (lambda: kl.Conv2D(4, 3, padding="same"), IMAGE),
    "conv2d_strides": (lambda: kl.Conv2D(4, 2, 2, activation="leaky_relu"), IMAGE),
    "conv2d_dilated": (lambda: kl.Conv2D(4, 2, dilation_rate=2, padding="same"), IMAGE),
    "conv2d_groups": (lambda: kl.Conv2D(6, 2, groups=3), IMAGE),
    "conv2d_pointwise_gaps": (lambda: kl.Conv2D(2, 1, 2), IMAGE),
    "conv3d": (lambda: kl.Conv3D(3, 2, padding="same"), VOLUME),
    "depthwise1d": (lambda: kl.DepthwiseConv1D(3, depth_multiplier=2), SEQUENCE),
    "depthwise2d": (lambda: kl.DepthwiseConv2D(3, padding="same"), IMAGE),
    "depthwise2d_strides": (lambda: kl.DepthwiseConv2D(3, 2, "same", depth_multiplier=2, activation="relu"), IMAGE),
    "separable1d": (lambda: kl.SeparableConv1D(4, 3), SEQUENCE),
    "separable2d": (lambda: kl.SeparableConv2D(4, 3, padding="same"), IMAGE),
    "transposed1d": (lambda: kl.Conv1DTranspose(2, 2, 2), SEQUENCE),
    "transposed2d": (lambda: kl.Conv2DTranspose(2, 2, 2), IMAGE),
    "transposed2d_overlap": (lambda: kl.Conv2DTranspose(2, 3, 2, "same"), (3, 3, 2)),
    "transposed3d": (lambda: kl.Conv3DTranspose(1, 2, 2), (2, 2, 2, 3)),
    "max1d": (lambda: kl.MaxPooling1D(), SEQUENCE),
    "max2d": (lambda: kl.MaxPooling2D(), IMAGE),
    "max2d_overlap": (lambda: kl.MaxPooling2D(3, 2, "same"), IMAGE),
    "max3d": (lambda: kl.MaxPooling3D(), VOLUME),
    "average1d": (lambda: kl.AveragePooling1D(3, 2), SEQUENCE),
    "average2d": (lambda: kl.AveragePooling2D(2, padding="same"), IMAGE),
    "average3d": (lambda: kl.AveragePooling3D(2), VOLUME),
    "global_average1d": (lambda: kl.GlobalAveragePooling1D(), SEQUENCE),
    "global_average2d": (lambda: kl.GlobalAveragePooling2D(keepdims=True), IMAGE),
    "global_average3d": (lambda: kl.GlobalAveragePooling3D(), VOLUME),
    "global_max1d": (lambda: kl.GlobalMaxPooling1D(), SEQUENCE),
    "global_max2d": (lambda: kl.GlobalMaxPooling2D(), IMAGE),
    "global_max3d": (lambda: kl.GlobalMaxPooling3D(keepdims=True), VOLUME),
    "batch_normalization": (lambda: kl.BatchNormalization(), IMAGE),
    "batch_normalization_plain": (lambda: kl.BatchNormalization(scale=False, center=False), VECTOR),
    "batch_normalization_axis": (lambda: kl.BatchNormalization(axis=1), IMAGE),
    "layer_normalization": (lambda: kl.LayerNormalization(), SEQUENCE),
    "layer_normalization_axes": (lambda: kl.LayerNormalization(axis=[1, 2]), SEQUENCE),
    "group_normalization": (lambda: kl.GroupNormalization(2), (4, 3, 4)),
    "instance_normalization": (lambda: kl.GroupNormalization(-1, scale=False), IMAGE),
    "rms_normalization": (lambda: kl.RMSNormalization(), SEQUENCE),
    "unit_normalization": (lambda: kl.UnitNormalization(), SEQUENCE),
    "rescaling": (lambda: kl.Rescaling(0.5, -1.0), IMAGE),
    "rescaling_channels": (lambda: kl.Rescaling([0.5, 2.0, -1.0], [0.0, 1.0, 2.0]), IMAGE),
    "normalization": (lambda: kl.Normalization(mean=[1.0, 2.0, 3.0], variance=[1.0, 4.0, 9.0]), IMAGE),
    **{f"activation_{name}": ((lambda name=name: kl.Activation(name)), (2, 4)) for name in ACTIVATIONS},
    "relu_layer": (lambda: kl.ReLU(negative_slope=0.1), VECTOR),
    "relu_capped": (lambda: kl.ReLU(max_value=1.0), VECTOR),
    "leaky_relu_layer": (lambda: kl.LeakyReLU(0.3), VECTOR),
    "elu_layer": (lambda: kl.ELU(1.5), VECTOR),
    "prelu": (lambda: kl.PReLU(shared_axes=[1, 2]), IMAGE),
    "dropout": (lambda: kl.Dropout(0.5), VECTOR),
    "spatial_dropout": (lambda: kl.SpatialDropout2D(0.5), IMAGE),
    "gaussian_noise": (lambda: kl.GaussianNoise(0.5), VECTOR),
    "flatten": (lambda: kl.Flatten(), IMAGE),
    "reshape": (lambda: kl.Reshape((3, -1)), IMAGE),
    "permute": (lambda: kl.Permute((2, 3, 1)), IMAGE),
    "zero_padding1d": (lambda: kl.ZeroPadding1D((1, 2)), SEQUENCE),
    "zero_padding2d": (lambda: kl.ZeroPadding2D(((1, 0), (0, 2))), IMAGE),
    "zero_padding3d": (lambda: kl.ZeroPadding3D(1), VOLUME),
    "cropping1d": (lambda: kl.Cropping1D((1, 2)), SEQUENCE),
    "cropping2d": (lambda: kl.Cropping2D(((1, 0), (0, 2))), IMAGE),
    "cropping3d": (lambda: kl.Cropping3D(1), VOLUME),
    "up_sampling1d": (lambda: kl.UpSampling1D(2), SEQUENCE),
    "up_sampling2d": (lambda: kl.UpSampling2D((2, 3)), (3, 2, 2)),
    "up_sampling2d_bilinear": (lambda: kl.UpSampling2D(2, interpolation="bilinear"), (3, 2, 2)),
    "up_sampling3d": (lambda: kl.UpSampling3D(2), (2, 2, 2, 1)),
    "repeat_vector": (lambda: kl.RepeatVector(3), VECTOR),
    "add": (lambda: branches(kl.Add(), 3), VECTOR),
    "subtract": (lambda: branches(kl.Subtract()), VECTOR),
    "add_to_itself": (lambda: lambda x: kl.Add()([x, x, kl.LeakyReLU()(x)]), VECTOR),
    "average": (lambda: branches(kl.Average(), 3), VECTOR),
    "maximum": (lambda: branches(kl.Maximum(), 3), VECTOR),
    "minimum": (lambda: branches(kl.Minimum()), VECTOR),
    "multiply": (lambda: branches(kl.Multiply()), VECTOR),
    "squeeze_and_excite": (lambda: squeeze_and_excite, IMAGE),
    "concatenate": (lambda: branches(kl.Concatenate()), VECTOR),
    "concatenate_axis": (lambda: lambda x: kl.Concatenate(axis=1)([x, kl.LeakyReLU()(x)]), SEQUENCE),
    "residual": (lambda: lambda x: kl.Add()([x, kl.Dense(5, "leaky_relu")(x)]), VECTOR),
    "nested": (lambda: nested, VECTOR),
    "arithmetic": (lambda: lambda x: 1.0 - (2.0 * x + 3.0) / 4.0, VECTOR),
    "operations": (lambda: lambda x: -ops.tanh(kl.Dense(3)(x)) + kl.Dense(3)(x), VECTOR),
    "slice": (lambda: lambda x: x[:, 1:, ::2], IMAGE),
    "slice_channels": (lambda: lambda x: x[..., :2], IMAGE),
    "slice_last": (lambda: lambda x: x[:, -1], SEQUENCE),
    "square": (lambda: lambda x: (x + 3.0) * (x + 3.0), VECTOR),
    "sum_with_itself": (lambda: lambda x: x + x, VECTOR),
    "product": (lambda: lambda x: kl.Dense(3)(x) * kl.Dense(3)(x), VECTOR),
    "einsum_ellipsis": (lambda: kl.EinsumDense("...c,cd->...d", (4,), "relu", bias_axes="d"), SEQUENCE),
    "einsum_bias_of_places": (lambda: kl.EinsumDense("abc,cd->abd", (6, 2), bias_axes="bd"), SEQUENCE),
    "dense_activation_layer": (lambda: kl.Dense(3, activation=kl.LeakyReLU(0.3)), VECTOR),
    "dense_keyword": (lambda: lambda x: kl.Dense(3)(inputs=x), VECTOR),
    "dense_subclass": (lambda: WithOwnName(3), VECTOR),
    "conv_training": (lambda: lambda x: kl.Dropout(0.5)(kl.Conv1D(2, 2)(x), training=False), SEQUENCE),
    "conv2d_channels_first": (lambda: kl.Conv2D(4, 2, data_format="channels_first"), (2, 4, 3)),
    "conv1d_groups": (lambda: kl.Conv1D(6, 2, groups=3), SEQUENCE),
    "depthwise2d_dilated": (lambda: kl.DepthwiseConv2D(2, dilation_rate=2), IMAGE),
    "separable2d_strides": (lambda: kl.SeparableConv2D(4, 3, 2, "same", depth_multiplier=2), IMAGE),
    "transposed2d_activation": (lambda: kl.Conv2DTranspose(2, 2, 2, activation="tanh"), (3, 2, 4)),
    "transposed2d_output_padding": (lambda: kl.Conv2DTranspose(2, 2, 2, output_padding=1), (3, 2, 2)),
    "max2d_gaps": (lambda: kl.MaxPooling2D(1, 2), IMAGE),
    "max2d_one": (lambda: kl.MaxPooling2D(1), IMAGE),
    "max2d_far_apart": (lambda: kl.MaxPooling2D(2, 3), IMAGE),
    "max1d_overlap": (lambda: kl.MaxPooling1D(3, 1), SEQUENCE),
    "average2d_gaps": (lambda: kl.AveragePooling2D(1, 2, "same"), IMAGE),
    "average2d_channels_first": (lambda: kl.AveragePooling2D(2, data_format="channels_first"), (2, 4, 3)),
    "global_average1d_keepdims": (lambda: kl.GlobalAveragePooling1D(keepdims=True), SEQUENCE),
    "normalization_adapted": (lambda: adapted, VECTOR),
    "normalization_inverse": (lambda: kl.Normalization(-1, [1.0, 2.0], [4.0, 0.5], invert=True), (3, 2)),
    "normalization_of_units": (lambda: kl.Normalization(mean=[0.0, 0.0, 1e4], variance=[1e10, 1.0, 1e-8]), IMAGE),
    "layer_normalization_axis": (lambda: kl.LayerNormalization(axis=1), SEQUENCE),
    "layer_normalization_of_two": (lambda: kl.LayerNormalization(), (3, 2)),
    "layer_normalization_plain": (lambda: kl.LayerNormalization(center=False, scale=False), SEQUENCE),
    "group_normalization_axis": (lambda: kl.GroupNormalization(2, axis=1), (4, 3, 2)),
    "unit_normalization_axes": (lambda: kl.UnitNormalization(axis=[1, 2]), SEQUENCE),
    "softmax_layer": (lambda: lambda x: kl.Dense(2)(kl.Softmax()(x)), VECTOR),
    "leaky_relu_zero": (lambda: kl.LeakyReLU(0.0), VECTOR),
    "elu_zero": (lambda: kl.ELU(0.0), VECTOR),
    "prelu_unshared": (lambda: kl.PReLU(), IMAGE),
    "augmentation": (lambda: lambda x: kl.RandomZoom(0.2)(kl.RandomFlip()(x)), IMAGE),
    "add_one": (lambda: lambda x: kl.Add()([x]), VECTOR),
    "concatenate_three": (lambda: branches(kl.Concatenate(axis=-1), 3), VECTOR),
    "multiply_three": (lambda: branches(kl.Multiply(), 3), VECTOR),
    "used_twice": (lambda: used_twice, VECTOR),
    "same_names": (lambda: two_models_of_the_same_names, VECTOR),
    "deep_in_models": (lambda: lambda x: keras.Sequential([keras.Sequential([kl.Dense(4)]), kl.Dense(3)])(x), VECTOR),
    "constants_of_channels": (lambda: lambda x: (x - np.array([1.0, 2.0, 3.0])) * np.array([[0.5, 2.0, -1.0]]), IMAGE),
    "constant_that_broadcasts": (lambda: lambda x: ops.expand_dims(x, -1) - np.arange(3.0), VECTOR),
    "constant_of_places": (lambda: lambda x: x + np.arange(18.0).reshape(6, 3), SEQUENCE),
    "quotient": (lambda: lambda x: 1.0 / (x * x + 1.0), VECTOR),
    "activations_as_operations": (
        lambda: lambda x: keras.activations.relu(ops.leaky_relu(ops.elu(ops.softplus(ops.sigmoid(x))), 0.3)),
        VECTOR,
    ),
    "relu_operation_capped": (lambda: lambda x: keras.activations.relu(x, max_value=0.5), VECTOR),
    "gelu_operation": (lambda: lambda x: ops.gelu(x) + 1.0, VECTOR),
    "shape_operations": (
        lambda: lambda x: ops.squeeze(ops.expand_dims(ops.transpose(ops.reshape(x, (-1, 5, 18)), (0, 2, 1)), 1), 1),
        IMAGE,
    ),
    "flip": (lambda: lambda x: ops.flip(x, axis=[1, -1]), IMAGE),
    "maximum_operation": (lambda: lambda x: ops.minimum(kl.Dense(3)(x), ops.maximum(x[:, :3], x[:, 2:])), VECTOR),
    "maximum_of_a_number": (lambda: lambda x: ops.maximum(x, 0.1), VECTOR),
    "slice_backwards": (lambda: lambda x: x[:, ::-1, ..., 1], IMAGE),
    "concatenate_operation": (lambda: lambda x: ops.concatenate([x, 2.0 * x], axis=1), SEQUENCE),
    "time_distributed": (lambda: kl.TimeDistributed(kl.Dense(2)), SEQUENCE),
    "spectral_normalization": (lambda: kl.SpectralNormalization(kl.Dense(3)), VECTOR),
    "last_state": (lambda: last_state, SEQUENCE),
    "masked": (lambda: masked, SEQUENCE),
    "nothing": (lambda: lambda x: x, VECTOR),
    "lstm": (lambda: kl.LSTM(3), SEQUENCE),
    "gru_sequences": (lambda: kl.GRU(2, return_sequences=True), SEQUENCE),
    "bidirectional": (lambda: kl.Bidirectional(kl.SimpleRNN(2)), SEQUENCE),
    "attention": (lambda: attention, SEQUENCE),
    "adaptive_pooling": (lambda: kl.AdaptiveAveragePooling2D(2), IMAGE),
}


def model_of(name, seed=0):
    """A Keras model of one case, with weights that are not special."""
    keras.utils.set_random_seed(seed)
    build, shape = CASES[name]
    x = keras.Input(shape)
    model = keras.Model(x, build()(x))
    generator = np.random.default_rng(seed)
    for weight in model.weights:
        if name == "normalization_adapted":
            continue  # It has measured its numbers.
        if "variance" in weight.path:
            weight.assign(generator.uniform(0.5, 2.0, weight.shape))
        elif "float" in weight.dtype:
            weight.assign_add(0.3 * generator.normal(size=weight.shape))
    if name == "prelu":
        model.layers[-1].alpha.assign(np.abs(model.layers[-1].alpha) + 0.1)
    return model


def data_of(name, count=6, seed=1):
    return np.random.default_rng(seed).normal(size=(count, *CASES[name][1])).astype("float32")
