"""A flow as a SavedModel, which needs nothing but TensorFlow to run."""

import tensorflow as tf

from tfp_flowify.endpoints import Endpoints


def export_flow(endpoints: Endpoints, variables, path, num_draws: int = 1):
    """Writes a SavedModel whose signatures are the endpoints of a flow; every variable is stored once.

    Args:
      endpoints: the functions of the flow.
      variables: the variables that they use.
      path: a folder; it is made, or written over.
      num_draws: draws of the noise for `log_prob` and `bits_per_dim`.
    """
    module = tf.Module()
    module.weights = list(variables)
    module.levels = tf.Variable(endpoints.distribution.bijector.levels or 0, trainable=False, name="levels")
    log_prob, names = endpoints.log_prob(num_draws), endpoints.part_names
    signatures = {
        "log_prob": _signature(lambda x, seed: {"log_prob": log_prob(x, seed)}, [endpoints.x, endpoints.seed]),
        "bits_per_dim": _signature(
            lambda x, seed: {"bits_per_dim": endpoints.to_bits(log_prob(x, seed))}, [endpoints.x, endpoints.seed]
        ),
        "sample": _signature(
            lambda n, temperature, seed: {"x": endpoints.sample(n, temperature, seed)},
            endpoints.sample.input_signature,
        ),
        "encode": _signature(
            lambda x, seed: dict(zip(names, endpoints.encode(x, seed), strict=True)), [endpoints.x, endpoints.seed]
        ),
        "decode": _signature(lambda **parts: {"x": endpoints.decode([parts[name] for name in names])}, endpoints.parts),
        "predict": _signature(lambda x: _named_outputs(endpoints.predict(x)), [endpoints.x]),
    }
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)  # They would be most of the graph.
    tf.saved_model.save(module, str(path), signatures, options)


def _signature(function, specs):
    """A concrete function whose inputs have the names of the specs."""
    return tf.function(function, autograph=False).get_concrete_function(**{spec.name: spec for spec in specs})


def _named_outputs(outputs):
    if isinstance(outputs, dict):
        return outputs
    outputs = outputs if isinstance(outputs, list | tuple) else [outputs]
    return {"output" if len(outputs) == 1 else f"output_{i}": value for i, value in enumerate(outputs)}
