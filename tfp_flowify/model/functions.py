"""The compiled functions of a flow, for any batch size: a `FlowModel` calls them and exports them."""

import tensorflow as tf

from tfp_flowify.augmentation import draw
from tfp_flowify.core.checks import as_list
from tfp_flowify.core.units import bits_per_dim
from tfp_flowify.distributions import FlowDistribution
from tfp_flowify.model.inputs import InputCheck

#: Draws of the noise that are computed at once.
CHUNK = 16


class FlowFunctions:
    """The functions of a flow over its network, each traced once. Data that the flow does not take make them fail.

    Seeds are pairs of int32. The parts of `encode` and `decode` are the outputs of the network, then what it dropped,
    with the names in `part_names`.

    Args:
      distribution: The flow.
      network: The ordinary network, a Keras model.
      check: What data the flow takes.
    """

    def __init__(self, distribution: FlowDistribution, network, check: InputCheck):
        self.distribution, self.network, self.check = distribution, network, check
        bijector, self.dtype = distribution.bijector, distribution.dtype
        outputs = ["z"] if len(bijector.outputs) == 1 else [f"z_{i}" for i in range(len(bijector.outputs))]
        self.part_names = outputs + [f"residual_{i}" for i in range(len(bijector.residuals))]
        self.x = tf.TensorSpec([None, *distribution.event_shape], self.dtype, name="x")
        self.seed = tf.TensorSpec([2], tf.int32, name="seed")
        self.parts = [
            tf.TensorSpec([None, *shape], self.dtype, name=name)
            for shape, name in zip(bijector.shapes_out, self.part_names, strict=True)
        ]
        self.draw_specs = [
            tf.TensorSpec([], tf.int32, name="n"),
            tf.TensorSpec([], self.dtype, name="temperature"),
            self.seed,
        ]
        self.encode = _compiled(self._encode, [self.x, self.seed])
        self.decode = _compiled(self._decode, [self.parts])
        self.reconstruct = _compiled(self._reconstruct, [self.x])
        self.predict = _compiled(self._predict, [self.x])
        self.sample = _compiled(self._sample, self.draw_specs)
        self.sample_mean = _compiled(self._sample_mean, self.draw_specs)
        self._log_prob = {}

    def log_prob(self, num_draws: int = 1):
        """The function (x, seed) -> log-likelihoods from that many draws of the noise."""
        if num_draws not in self._log_prob:

            def log_prob(x, seed):
                return self.distribution.score(self.check.asserted(x), num_draws, seed, min(num_draws, CHUNK))

            self._log_prob[num_draws] = _compiled(log_prob, [self.x, self.seed])
        return self._log_prob[num_draws]

    def _encode(self, x, seed):
        bijector = self.distribution.bijector
        noise = draw(bijector.noise, tf.shape(x)[:1], seed)
        return bijector.forward_and_log_det([self.check.asserted(x), *noise], self.distribution.prepare())[0]

    def _decode(self, parts):
        named = zip(parts, self.part_names, strict=True)
        parts = [tf.debugging.assert_all_finite(p, f"{n} is not finite.") for p, n in named]
        return self._back(parts, self.distribution.prepare())

    def _reconstruct(self, x):
        context = self.distribution.prepare()
        outputs = as_list(self.distribution.bijector.without_noise(self.check.asserted(x), context))
        return self._back([*outputs, *self.distribution.mean_residuals(tf.shape(x)[0])], context)

    def _back(self, parts, context):
        return self.distribution.bijector.inverse_and_log_det(parts, context)[0][0]

    def _predict(self, x):
        return self.network(self.check.asserted(x), training=False)

    def _sample(self, n, temperature, seed):
        return self.distribution.generate(n, seed, temperature)

    def _sample_mean(self, n, temperature, seed):
        return self.distribution.generate(n, seed, temperature, mean=True)


def export_functions(functions: FlowFunctions, variables, path, num_draws: int = 1):
    """Writes a SavedModel whose signatures are the functions of a flow; it needs nothing but TensorFlow to run.

    Args:
      functions: Those of the flow.
      variables: The variables that they use; each is stored once.
      path: A folder; it is made, or written over.
      num_draws: Draws of the noise for `log_prob` and `bits_per_dim`.
    """
    module = tf.Module()
    module.weights = list(variables)
    module.levels = tf.Variable(functions.check.levels or 0, trainable=False, name="levels")
    module.num_draws = tf.Variable(num_draws, trainable=False, name="num_draws")
    log_prob, names, x, seed = functions.log_prob(num_draws), functions.part_names, functions.x, functions.seed
    signatures = {
        "log_prob": _signature(lambda x, seed: {"log_prob": log_prob(x, seed)}, [x, seed]),
        "bits_per_dim": _signature(
            lambda x, seed: {"bits_per_dim": bits_per_dim(log_prob(x, seed), functions.check.event_shape)}, [x, seed]
        ),
        "sample": _signature(
            lambda n, temperature, seed: {"x": functions.sample(n, temperature, seed)}, functions.draw_specs
        ),
        "encode": _signature(lambda x, seed: dict(zip(names, functions.encode(x, seed), strict=True)), [x, seed]),
        "decode": _signature(lambda **parts: {"x": functions.decode([parts[name] for name in names])}, functions.parts),
        "predict": _signature(lambda x: _named_outputs(functions.predict(x)), [x]),
    }
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)  # They would be most of the graph.
    tf.saved_model.save(module, str(path), signatures, options)


def _compiled(function, signature):
    return tf.function(function, autograph=False, input_signature=signature)


def _signature(function, specs):
    """A concrete function whose inputs have the names of the specs."""
    return tf.function(function, autograph=False).get_concrete_function(**{spec.name: spec for spec in specs})


def _named_outputs(outputs):
    if isinstance(outputs, dict):
        return outputs
    outputs = outputs if isinstance(outputs, list | tuple) else [outputs]
    return {"output" if len(outputs) == 1 else f"output_{i}": value for i, value in enumerate(outputs)}
