"""The encoder against the original's outputs and the papers' counts."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf

import modeling
import optimization
from bert import layers, loss_scale, variables
from bert.errors import UserError
from bert.models import checkpoints

# Parameters of the released models with pooler, by arithmetic; tiny, base and
# large are also the published figures.
SIZES = {
  "tiny": (2, 128, 4385920),
  "mini": (4, 256, 11170560),
  "small": (4, 512, 28763648),
  "medium": (8, 512, 41373184),
  "base": (12, 768, 109482240),
  "large": (24, 1024, 335141888),
}


def _config(layers, hidden):
  return modeling.BertConfig(
    vocab_size=30522,
    hidden_size=hidden,
    num_hidden_layers=layers,
    num_attention_heads=hidden // 64,
    intermediate_size=4 * hidden,
    type_vocab_size=2,
  )


@pytest.mark.parametrize("size", SIZES)
def test_parameter_count(size):
  layers, hidden, expected = SIZES[size]
  shapes = modeling.variable_shapes(_config(layers, hidden))
  assert sum(int(np.prod(shape)) for shape in shapes.values()) == expected


FAMILY = {
  "vocab_size": 30,
  "hidden_size": 8,
  "num_hidden_layers": 4,
  "num_attention_heads": 2,
  "intermediate_size": 16,
  "max_position_embeddings": 12,
  "type_vocab_size": 2,
  "initializer_range": 0.5,
}


def _build(golden, is_training=True, precision="float32", **kwargs):
  return modeling.BertModel(
    golden.config,
    is_training,
    golden.inputs["input_ids"],
    golden.inputs["input_mask"],
    golden.inputs["segment_ids"],
    precision=precision,
    **kwargs,
  )


def _outputs(model):
  layers = model.get_all_encoder_layers()
  return {
    "embedding_output": model.get_embedding_output(),
    "encoder_layer_0": layers[0],
    "encoder_layer_1": layers[1],
    "sequence_output": model.get_sequence_output(),
    "pooled_output": model.get_pooled_output(),
  }


def _assert_golden(outputs, golden):
  for name, value in outputs.items():
    expected = golden.arrays[f"forward/{name}"]
    np.testing.assert_allclose(value, expected, rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("one_hot", [False, True])
def test_eager_outputs_are_the_originals(golden, one_hot):
  with golden.store():
    model = _build(golden, use_one_hot_embeddings=one_hot)
    _assert_golden(_outputs(model), golden)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_function_outputs_are_the_originals(golden, jit_compile):
  store = golden.store()

  @tf.function(jit_compile=jit_compile, autograph=False)
  def forward():
    with store:
      return _outputs(_build(golden))

  _assert_golden(forward(), golden)
  _assert_golden(forward(), golden)


def test_v1_session_as_in_code_for_the_original(golden):
  v1 = tf.compat.v1
  with tf.Graph().as_default(), v1.Session() as session:
    ids = v1.placeholder(tf.int32, [None, 32])
    mask = v1.placeholder(tf.int32, [None, 32])
    types = v1.placeholder(tf.int32, [None, 32])
    model = modeling.BertModel(golden.config, False, ids, mask, types)
    tvars = v1.trainable_variables()
    assignment_map, names = modeling.get_assignment_map_from_checkpoint(
      tvars, golden.checkpoint
    )
    assert {v.name for v in tvars} <= names.keys()
    v1.train.init_from_checkpoint(golden.checkpoint, assignment_map)
    session.run(v1.global_variables_initializer())
    outputs = session.run(
      _outputs(model),
      {
        ids: golden.inputs["input_ids"],
        mask: golden.inputs["input_mask"],
        types: golden.inputs["segment_ids"],
      },
    )
  _assert_golden(outputs, golden)


def test_no_variables_to_assign_outside_of_a_v1_graph(golden):
  with pytest.raises(ValueError, match="initialize_from"):
    modeling.get_assignment_map_from_checkpoint([], golden.checkpoint)


def test_partitioned_variables_in_a_v1_graph(golden):
  v1 = tf.compat.v1
  fields = golden.config.to_dict() | {"num_hidden_layers": 1}
  config = modeling.BertConfig.from_dict(fields)
  with tf.Graph().as_default(), v1.Session() as session:
    parts = v1.fixed_size_partitioner(2)
    with v1.variable_scope("", partitioner=parts):
      model = modeling.BertModel(config, True, golden.inputs["input_ids"])
      loss = tf.reduce_sum(model.get_pooled_output())
      train_op = optimization.create_optimizer(loss, 1e-3, 10, 0, False)
    v1.train.init_from_checkpoint(golden.checkpoint, {"bert/": "bert/"})
    session.run(v1.global_variables_initializer())
    embedded, before = session.run([model.get_embedding_output(), loss])
    session.run(train_op)
    assert session.run(loss) < before
  # The golden rows have segments, too; the first token has segment 0.
  expected = golden.arrays["forward/embedding_output"][:, 0]
  np.testing.assert_allclose(embedded[:, 0], expected, rtol=0, atol=1e-5)


def test_the_last_layer_at_positions_alone(golden):
  lengths = golden.inputs["input_mask"].sum(axis=1, keepdims=True)
  positions = np.minimum(golden.inputs["masked_lm_positions"], lengths - 1)
  with golden.store():
    model = _build(golden)
  expected = golden.arrays["forward/sequence_output"]
  expected = np.take_along_axis(expected, positions[:, :, np.newaxis], axis=1)
  found = model.sequence_output_at(tf.constant(positions))
  np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_getters_outside_the_graph_of_the_model(golden):
  with tf.Graph().as_default() as graph:
    model = _build(golden)
  outputs = [model.get_pooled_output(), model.get_sequence_output()]
  assert all(x.graph is graph for x in outputs)
  assert model.get_pooled_output() is outputs[0]
  assert model.pooled_output is outputs[0]


def test_the_original_layers_without_a_mask():
  x = tf.constant(np.random.default_rng(0).normal(size=[2, 3, 8]), tf.float32)
  sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
  with variables.VariableStore():
    layers = modeling.transformer_model(
      x, tf.ones([2, 3, 3]), **sizes, do_return_all_layers=True
    )
    last = modeling.transformer_model(x, **sizes)
    matrix = tf.reshape(x, [6, 8])
    sizes = {"num_attention_heads": 2, "size_per_head": 4}
    attended = modeling.attention_layer(x, x, **sizes)
    flat = modeling.attention_layer(
      matrix,
      matrix,
      **sizes,
      do_return_2d_tensor=True,
      batch_size=2,
      from_seq_length=3,
      to_seq_length=3,
    )
  assert len(layers) == 2
  np.testing.assert_allclose(last, layers[-1], atol=1e-6)
  assert flat.shape == [6, 8]
  np.testing.assert_allclose(attended, tf.reshape(flat, [2, 3, 8]), atol=1e-6)


def test_padding_changes_nothing(golden):
  lengths = golden.inputs["input_mask"].sum(axis=1)
  row, length = int(np.argmin(lengths)), int(lengths.min())
  assert length < 32
  with golden.store():
    short = modeling.BertModel(
      golden.config,
      False,
      golden.inputs["input_ids"][row : row + 1, :length],
      None,
      golden.inputs["segment_ids"][row : row + 1, :length],
    )
  np.testing.assert_allclose(
    short.get_sequence_output()[0],
    golden.arrays["forward/sequence_output"][row, :length],
    rtol=0,
    atol=1e-5,
  )


def _softmax_by_definition(golden):
  """Vaswani et al. (2017), equation 1, in float64, for each layer's input."""
  weights = checkpoints.Checkpoint(golden.checkpoint)
  allowed = golden.inputs["input_mask"][:, np.newaxis, np.newaxis, :]
  heads = golden.config.num_attention_heads
  expected = []
  for index, below in enumerate(("embedding_output", "encoder_layer_0")):
    x = golden.arrays[f"forward/{below}"].astype(np.float64)

    def by_head(name, x=x, index=index):
      scope = f"bert/encoder/layer_{index}/attention/self/{name}"
      y = x @ weights[f"{scope}/kernel"] + weights[f"{scope}/bias"]
      return y.reshape([*y.shape[:2], heads, -1]).transpose(0, 2, 1, 3)

    query, key = by_head("query"), by_head("key")
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True)) * allowed
    expected.append(powers / powers.sum(axis=-1, keepdims=True))
  return expected


def _probs_in_a_function(golden, precision):
  store = golden.store()

  @tf.function(autograph=False)
  def forward():
    with store:
      return _build(golden, precision=precision).get_all_attention_probs()

  return forward()


def _probs_eagerly(golden, precision):
  with golden.store():
    model = _build(golden, precision=precision)
  return model.get_all_attention_probs()


@pytest.mark.parametrize(
  ("way", "precision", "tolerance"),
  [(_probs_eagerly, "float32", 1e-5), (_probs_in_a_function, "bfloat16", 0.03)],
)
def test_attention_probs_by_definition(golden, way, precision, tolerance):
  found = way(golden, precision)
  expected = _softmax_by_definition(golden)
  masked = golden.inputs["input_mask"] == 0
  assert masked.any()
  assert len(found) == len(expected)
  for probs, wanted in zip(map(np.asarray, found), expected, strict=True):
    assert probs.dtype == np.float32
    assert probs.shape == wanted.shape
    np.testing.assert_allclose(probs, wanted, rtol=0, atol=tolerance)
    np.testing.assert_allclose(probs.sum(axis=-1), 1, rtol=0, atol=1e-5)
    assert not probs.transpose(0, 3, 1, 2)[masked].any()


def test_attention_probs_are_those_before_dropout(golden):
  fields = golden.config.to_dict() | {"attention_probs_dropout_prob": 0.5}
  with golden.store():
    model = modeling.BertModel(
      modeling.BertConfig.from_dict(fields),
      True,
      golden.inputs["input_ids"],
      golden.inputs["input_mask"],
      golden.inputs["segment_ids"],
    )
  # The layers above read what dropout has changed.
  np.testing.assert_allclose(
    model.get_all_attention_probs()[0],
    _softmax_by_definition(golden)[0],
    atol=1e-5,
  )


def test_a_graph_has_the_gradients_of_eager_code(golden):
  """In a graph, all layers but the last one share a trace."""
  fields = {"num_hidden_layers": 4, "hidden_dropout_prob": 0.3}
  config = modeling.BertConfig.from_dict(golden.config.to_dict() | fields)

  def step():
    with variables.VariableStore() as store, tf.GradientTape() as tape:
      ids, mask = golden.inputs["input_ids"], golden.inputs["input_mask"]
      model = modeling.BertModel(config, True, ids, mask)
      loss = tf.reduce_mean(model.pooled_output * tf.range(32.0))
    return [loss, *tape.gradient(loss, store.trainable())]

  graph = tf.function(step, autograph=False)
  for found, wanted in zip(graph(), step(), strict=True):
    found, wanted = map(tf.convert_to_tensor, (found, wanted))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
    assert np.any(found)


def _classifier_loss(golden, precision="float32", **kwargs):
  pooled = _build(golden, precision=precision, **kwargs).get_pooled_output()
  weights = variables.get_variable("output_weights", [3, 32])
  bias = variables.get_variable("output_bias", [3])
  logits = tf.matmul(pooled, weights, transpose_b=True) + bias
  return tf.reduce_mean(
    tf.nn.sparse_softmax_cross_entropy_with_logits(
      labels=golden.inputs["label_ids"], logits=logits
    )
  )


def test_bfloat16_outputs_are_near_the_originals(golden):
  with golden.store() as store:
    outputs = _outputs(_build(golden, precision="bfloat16"))
  for name, value in outputs.items():
    assert value.dtype == tf.float32
    error = value.numpy() - golden.arrays[f"forward/{name}"]
    if name == "embedding_output":
      assert np.abs(error).max() < 1e-5
      continue
    # A number of 8 bits is off by its 2**-9 at most. Some ten roundings in
    # each of two layers add up as random ones do, on vectors of variance 1:
    # sqrt(20) / 512 = 0.009; and weights may triple it. The largest of some
    # thousand errors lies within five deviations.
    deviation = np.sqrt(np.mean(np.square(error)))
    assert 1e-3 < deviation < 0.03, name
    assert np.abs(error).max() < 0.15, name
  made = {name: (v.shape.as_list(), v.dtype) for name, v in store.items()}
  shapes = modeling.variable_shapes(golden.config)
  assert made == {name: (s, tf.float32) for name, s in shapes.items()}


def test_inference_keeps_matrices_in_16_bits(golden):
  outputs = []
  for is_for_inference in (False, True):
    store = golden.store()
    store.is_for_inference = is_for_inference
    with store:
      model = _build(golden, precision="bfloat16")
      outputs.append(model.get_sequence_output())
    dtypes = {variable.dtype for _, variable in store.items()}
    kinds = {tf.float32, tf.bfloat16} if is_for_inference else {tf.float32}
    assert dtypes == kinds
  np.testing.assert_array_equal(*outputs)
  kept = {name for name, v in store.items() if v.dtype == tf.bfloat16}
  assert kept
  assert all(re.search("layer_.*(kernel|bias)$", name) for name in kept)


# Errors of 0.01 in the pooled output, in bfloat16, move a loss near 1 by as
# much. float16 has three more bits.
@pytest.mark.parametrize(
  ("precision", "tolerance"), [("bfloat16", 0.05), ("float16", 0.05 / 8)]
)
def test_updates_in_16_bits_are_near_the_originals(
  golden, precision, tolerance
):
  store = golden.store("classifier")
  scales = precision == "float16"
  update = optimization.Optimization(1e-3, 12, 4, loss_scaling=scales)

  @tf.function(autograph=False)
  def step():
    with store:
      loss = _classifier_loss(golden, precision)
      optimization.minimize(loss, update)
      return loss

  losses = [step().numpy() for _ in range(12)]
  expected = golden.arrays["classifier/losses"]
  assert expected[-1] < 0.8 * expected[0]
  np.testing.assert_allclose(losses, expected, rtol=0, atol=tolerance)
  assert not scales or store["loss_scale"].numpy() == loss_scale.START
  assert not scales or store["skipped_steps"].numpy() == 0


def test_layer_norm_of_bfloat16_is_computed_in_float32():
  # Their mean, 201.5, takes 9 bits.
  x = np.array([[200.0, 201.0, 202.0, 203.0]])
  with variables.VariableStore():
    out = modeling.layer_norm(tf.constant(x, tf.bfloat16))
  assert out.dtype == tf.bfloat16
  expected = (x - x.mean()) / x.std()
  np.testing.assert_allclose(out.numpy().astype(float), expected, rtol=2**-8)


def test_dropout_rate_scale_and_repeatability():
  x = tf.ones([1000, 1001])
  with variables.VariableStore(seed=3):
    first, second = modeling.dropout(x, 0.1), modeling.dropout(x, 0.1)
  with variables.VariableStore(seed=3):
    again = modeling.dropout(x, 0.1)
  with variables.VariableStore(seed=4):
    other = modeling.dropout(x, 0.1)
  kept = first.numpy() != 0
  # A million draws: five standard deviations are 0.0015.
  assert abs(kept.mean() - 0.9) < 0.0015
  np.testing.assert_allclose(first.numpy()[kept], 1 / 0.9, rtol=1e-4)
  # Independent masks agree in 0.81 + 0.01 of the places.
  assert abs((kept == (second.numpy() != 0)).mean() - 0.82) < 0.003
  assert abs((kept == (other.numpy() != 0)).mean() - 0.82) < 0.003
  np.testing.assert_array_equal(first, again)


@pytest.fixture
def drops(monkeypatch):
  """A list of the shape, rate and seed of each dropout, as it is called."""
  found, original = [], layers.dropout

  def dropout(x, rate, seed=None):
    if rate:
      seed = variables.dropout_seed() if seed is None else seed
      found.append((x.shape.as_list(), rate, tuple(seed.numpy())))
    return original(x, rate, seed)

  for module in (layers, modeling):
    monkeypatch.setattr(module, "dropout", dropout)
  return found


DROPPING = modeling.BertConfig(
  vocab_size=9,
  hidden_size=6,
  num_hidden_layers=2,
  num_attention_heads=3,
  intermediate_size=8,
  hidden_dropout_prob=0.25,
  attention_probs_dropout_prob=0.5,
)


def test_where_dropout_is_applied(drops):
  with variables.VariableStore():
    model = modeling.BertModel(DROPPING, True, tf.ones([2, 5], tf.int32))
    model.get_sequence_output()
    layers.task_logits(model.get_pooled_output(), 3, True)
  everywhere = [([2, 3, 5, 5], 0.5), ([10, 6], 0.25), ([10, 6], 0.25)]
  # The last layer once more, at the first position.
  at_first = [([2, 3, 1, 5], 0.5), ([2, 6], 0.25), ([2, 6], 0.25)]
  assert [(shape, rate) for shape, rate, _ in drops] == [
    ([2, 5, 6], 0.25),
    *everywhere,
    *everywhere,
    *at_first,
    ([2, 6], 0.1),
  ]
  assert len({seed for *_, seed in drops}) == len(drops)
  drops.clear()
  with variables.VariableStore():
    model = modeling.BertModel(DROPPING, False, tf.ones([2, 5], tf.int32))
    layers.task_logits(model.get_pooled_output(), 3, False)
  assert drops == []


def test_dropout_is_on_the_attention_probabilities(monkeypatch):
  """Without any of them, and with values of bias 0, a context is 0."""
  monkeypatch.setattr(modeling, "dropout", lambda x, *_: tf.zeros_like(x))
  x = tf.constant(np.random.default_rng(0).normal(size=[2, 5, 6]), tf.float32)
  with variables.VariableStore():
    (weights, _), _ = modeling.stack_weights(DROPPING)
  heads = modeling.projections(x, x, weights.attention, 3)
  context, _ = modeling.attention(*heads, None, 0.5)
  assert not np.any(context)


def test_dropout_comes_before_the_residual(monkeypatch):
  """Of a block that drops everything, two normalizations are left."""
  monkeypatch.setattr(modeling, "dropout", lambda x, *_: tf.zeros_like(x))
  x = np.random.default_rng(0).normal(3, 2, size=[2, 5, 6])
  with variables.VariableStore():
    (weights, seed), _ = modeling.stack_weights(DROPPING)
    found = modeling.transformer_block(
      tf.constant(x, tf.float32), None, weights, seed, DROPPING
    )
  mean, deviation = x.mean(axis=-1), x.std(axis=-1)
  wanted = (x - mean[..., np.newaxis]) / deviation[..., np.newaxis]
  np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_dropout_changes_from_step_to_step_of_one_trace():
  store = variables.VariableStore()

  @tf.function(autograph=False)
  def step():
    with store:
      weight = variables.get_variable("kernel", [1000])
      mask = modeling.dropout(tf.ones([1000]), 0.5)
      loss = tf.reduce_sum(weight)
      optimization.create_optimizer(loss, 1e-3, 9, 0, use_tpu=False)
      return mask

  masks = [step().numpy() for _ in range(3)]
  assert np.any(masks[0] != masks[1])
  assert np.any(masks[1] != masks[2])


def test_checkpointing_changes_no_gradient(golden):
  fields = {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.3}
  config = modeling.BertConfig.from_dict(golden.config.to_dict() | fields)

  @tf.function(autograph=False)
  def run(checkpointing):
    with golden.store() as store:
      model = modeling.BertModel(
        config,
        True,
        golden.inputs["input_ids"][:, :16],
        golden.inputs["input_mask"][:, :16],
        gradient_checkpointing=checkpointing,
      )
      loss = tf.reduce_mean(model.pooled_output * tf.range(32.0))
      grads = tf.gradients(loss, store.trainable())
    names = map(variables.name_of, store.trainable())
    return {"loss": loss, **dict(zip(names, grads, strict=True))}

  expected, actual = run(False), run(True)
  assert len(expected) == 1 + len(modeling.variable_shapes(config))
  for name, value in expected.items():
    np.testing.assert_allclose(
      tf.convert_to_tensor(actual[name]),
      tf.convert_to_tensor(value),
      rtol=1e-6,
      atol=1e-6,
      err_msg=name,
    )


def test_a_recomputed_layer_drops_the_same_units():
  def layer(x, weights, seed):
    return layers.dropout(layers.affine(x, weights, tf.tanh), 0.5, seed)

  @tf.function(jit_compile=True, autograph=False)
  def gradients(x, kernel, bias, seed):
    results = []
    for function in (layer, layers.recomputed(layer)):
      hidden = function(x, (kernel, bias), seed)
      output = function(hidden, (kernel, bias), seed + 1)
      loss = tf.reduce_sum(tf.square(output))
      results.append([output, *tf.gradients(loss, [x, kernel, bias])])
    return results

  rng = np.random.default_rng(0)
  values = [rng.normal(size=shape) for shape in ([4, 8], [8, 8], [8])]
  values = [tf.constant(value, tf.float32) for value in values]
  expected, actual = gradients(*values, tf.constant([3, 4]))
  for value, same in zip(expected, actual, strict=True):
    assert np.any(value)
    np.testing.assert_allclose(value, same, rtol=1e-6, atol=1e-6)


def test_recomputation_survives_xla():
  """XLA merges equal operations, and then nothing is computed again."""

  def layer(x, kernel):
    return tf.exp(tf.matmul(x, kernel))

  def run(x, kernel):
    recomputed = layers.recomputed(layer)
    y = recomputed(recomputed(x, kernel), kernel)
    loss = tf.reduce_sum(tf.square(y))
    return loss, tf.gradients(loss, x)[0]

  args = tf.ones([2, 4]), tf.eye(4) / 2
  compiled = tf.function(run, autograph=False, jit_compile=True)
  hlo = compiled.experimental_get_compiler_ir(*args)(stage="optimized_hlo")
  # Products of two layers: forward, forward again, and those of the gradient.
  assert hlo.count(" dot(") == 2 + 2 + 2


def test_checkpointing_is_not_for_v1_graphs(golden):
  with (
    tf.Graph().as_default(),
    pytest.raises(ValueError, match="v1 graph does not support"),
  ):
    modeling.BertModel(
      golden.config,
      True,
      tf.ones([1, 8], tf.int32),
      gradient_checkpointing=True,
    )


def test_dropout_does_not_depend_on_what_else_is_built():
  config = _config(2, 128)
  ids = tf.ones([2, 8], tf.int32)

  def outputs(before, reads):
    with variables.VariableStore():
      for _ in range(before):
        modeling.dropout(_build_and_read(), 0.5)
      model = modeling.BertModel(config, True, ids)
    return [read(model) for read in reads]

  def _build_and_read():
    with variables.variable_scope("extra"):
      return modeling.BertModel(config, True, ids).get_sequence_output()

  reads = [
    modeling.BertModel.get_pooled_output,
    modeling.BertModel.get_sequence_output,
  ]
  pooled, sequence = outputs(0, reads)
  other_sequence, other_pooled = outputs(2, reads[::-1])
  np.testing.assert_array_equal(pooled, other_pooled)
  np.testing.assert_array_equal(sequence, other_sequence)


def test_config_keeps_extra_keys_and_round_trips(tmp_path):
  fields = modeling.BertConfig(99, 32, 2, 4, 37).to_dict()
  fields["directionality"] = "bidi"
  path = tmp_path / "bert_config.json"
  path.write_text(json.dumps(fields))
  config = modeling.BertConfig.from_json_file(str(path))
  assert config.to_dict() == fields
  text = json.dumps(fields, indent=2, sort_keys=True) + "\n"
  assert config.to_json_string() == text


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    ({"hidden_size": 12}, "vocab_size=None is not a positive integer"),
    ({"vocab_size": 9, "num_hidden_layers": 10**4}, "=10000 is not a positive"),
    ({"vocab_size": 9, "initializer_range": "x"}, "initializer_range='x'"),
    ({**FAMILY, "num_hidden_groups": 3}, "multiple of num_hidden_groups=3"),
    ({**FAMILY, "embedding_size": "4"}, "embedding_size='4' is not a positive"),
    ({**FAMILY, "position_offset": -1}, "is not an integer of at least 0"),
  ],
)
def test_config_file_errors_name_file_and_field(tmp_path, fields, message):
  path = tmp_path / "bad.json"
  path.write_text(json.dumps(fields))
  with pytest.raises(UserError, match=r"bad\.json") as error:
    modeling.BertConfig.from_json_file(str(path))
  assert message in str(error.value)


def test_activations():
  assert modeling.get_activation(None) is None
  assert modeling.get_activation("linear") is None
  assert modeling.get_activation("") is None
  assert modeling.get_activation("RELU") is tf.nn.relu
  assert modeling.get_activation("gelu") is modeling.gelu
  assert modeling.get_activation(tf.exp) is tf.exp
  # x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) at 1: 0.841192.
  np.testing.assert_allclose(modeling.gelu(1.0), 0.841192, rtol=1e-6)


def _gelu_by_definition(x):
  """Hendrycks & Gimpel (2016), section 2, in float64."""
  inner = np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)
  return 0.5 * x * (1.0 + np.tanh(inner))


def _gelu_with_slope(x):
  y = modeling.gelu(x)
  (slope,) = tf.gradients(y, x)
  return y, slope


def _gelu_in_a_session(x):
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    return session.run(_gelu_with_slope(tf.constant(x)))


def _gelu_on_a_tape(x):
  x = tf.convert_to_tensor(x)
  with tf.GradientTape() as tape:
    tape.watch(x)
    y = modeling.gelu(x)
  return y, tape.gradient(y, x)


GELUS = {
  "eager": _gelu_on_a_tape,
  "function": tf.function(_gelu_with_slope, autograph=False),
  "compiled": tf.function(_gelu_with_slope, autograph=False, jit_compile=True),
  "session": _gelu_in_a_session,
}


@pytest.mark.parametrize("way", GELUS)
def test_gelu_and_its_gradient(way):
  far = [-100, -30, 30, 100]
  x = np.append(np.linspace(-8, 8, 1601), far).astype(np.float32)
  y, slope = GELUS[way](x)
  exact = x.astype(np.float64)
  np.testing.assert_allclose(
    y, _gelu_by_definition(exact), rtol=1e-5, atol=1e-6
  )
  ahead, behind = (_gelu_by_definition(exact + h) for h in (1e-5, -1e-5))
  expected = (ahead - behind) / 2e-5
  np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=2e-6)


def test_attention_by_hand():
  # Equal keys: every allowed position weighs the same, a masked one nothing.
  x = tf.constant(np.random.default_rng(0).normal(size=[1, 3, 4]), tf.float32)
  mask = tf.constant([[[1, 1, 0]] * 3])
  values = {"key/kernel": np.zeros([4, 4]), "value/kernel": np.eye(4)}
  with variables.VariableStore(initial_values=values):
    out = modeling.attention_layer(
      x, x, mask, num_attention_heads=2, size_per_head=2
    )
  expected = np.mean(x.numpy()[:, :2], axis=1, keepdims=True)
  np.testing.assert_allclose(out, np.repeat(expected, 3, axis=1), atol=1e-6)


def test_shapes_and_ranks():
  x = tf.zeros([2, 3, 4])
  assert modeling.get_shape_list(x, expected_rank=3) == [2, 3, 4]
  matrix = modeling.reshape_to_matrix(x)
  assert matrix.shape == [6, 4]
  assert modeling.reshape_from_matrix(matrix, [2, 3, 4]).shape == [2, 3, 4]
  with pytest.raises(ValueError, match="rank 3"):
    modeling.assert_rank(x, [2, 4], name="x")
  with pytest.raises(ValueError, match="no rows"):
    modeling.reshape_to_matrix(tf.zeros([3]))


def test_too_long_a_sequence_is_an_error(golden):
  with golden.store(), pytest.raises(ValueError, match="128 positions"):
    modeling.BertModel(golden.config, False, tf.zeros([1, 129], tf.int32))


def test_a_second_size_in_one_store_is_an_error():
  with variables.VariableStore():
    modeling.BertModel(_config(1, 64), False, tf.zeros([1, 4], tf.int32))
    with pytest.raises(ValueError, match="VariableStore of its own"):
      modeling.BertModel(_config(1, 128), False, tf.zeros([1, 4], tf.int32))


@pytest.mark.parametrize(
  "fields",
  [
    {},
    {"type_vocab_size": 0},
    {"embedding_size": 4, "num_hidden_groups": 2},
    {"embedding_size": 8},
    {"position_offset": 2, "layer_norm_eps": 1e-5},
  ],
)
def test_a_model_makes_the_variables_that_variable_shapes_lists(fields):
  config = modeling.BertConfig(**FAMILY | fields)
  with variables.VariableStore() as store:
    _outputs(modeling.BertModel(config, False, tf.ones([1, 3], tf.int32)))
  made = {name: v.shape.as_list() for name, v in store.items()}
  assert made == modeling.variable_shapes(config)


def _values(config, seed=1):
  draw = np.random.default_rng(seed).normal
  shapes = modeling.variable_shapes(config)
  return {n: draw(size=s).astype(np.float32) for n, s in shapes.items()}


def _sequence_output(config, values, ids):
  with variables.VariableStore(initial_values=values):
    return modeling.BertModel(config, False, ids).get_sequence_output()


@pytest.mark.parametrize("groups", [1, 2])
def test_layers_of_a_group_have_the_same_weights(groups):
  shared = modeling.BertConfig(**FAMILY, num_hidden_groups=groups)
  alone = modeling.BertConfig(**FAMILY)
  values = _values(shared)
  unrolled = dict(values)
  for index in range(4):
    group = index * groups // 4  # 0, 0, 1, 1 for two groups.
    prefix, other = (f"bert/encoder/layer_{n}/" for n in (group, index))
    for name, value in values.items():
      if name.startswith(prefix):
        unrolled[other + name.removeprefix(prefix)] = value
  assert unrolled.keys() == modeling.variable_shapes(alone).keys()
  ids = tf.constant([[1, 2, 3, 4]])
  np.testing.assert_array_equal(
    _sequence_output(shared, values, ids),
    _sequence_output(alone, unrolled, ids),
  )


def test_layers_of_a_group_drop_other_units():
  config = modeling.BertConfig(**FAMILY, num_hidden_groups=1)
  with variables.VariableStore():
    seeds = [seed for _, seed in modeling.stack_weights(config)]
  assert len({tuple(seed.numpy()) for seed in seeds}) == 4


def test_shared_layers_in_a_v1_graph():
  config = modeling.BertConfig(**FAMILY, num_hidden_groups=2)
  values, ids = _values(config), [[1, 2, 3]]
  wanted = _sequence_output(config, values, tf.constant(ids))
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    model = modeling.BertModel(config, False, tf.constant(ids))
    made = tf.compat.v1.trainable_variables()
    found = {v.name.removesuffix(":0"): v for v in made}
    assert found.keys() == values.keys()
    for name, variable in found.items():
      variable.load(values[name], session)
    output = session.run(model.get_sequence_output())
  np.testing.assert_allclose(output, wanted, atol=1e-6)


def test_fields_that_are_berts_are_not_written():
  config = modeling.BertConfig(**FAMILY)
  assert "layer_norm_eps" not in config.to_dict()
  config.layer_norm_eps, config.embedding_size = 1e-5, 4
  text = config.to_json_string()
  fields = json.loads(text)
  assert (fields["layer_norm_eps"], fields["embedding_size"]) == (1e-5, 4)
  read = modeling.BertConfig.from_dict(fields)
  assert read.to_json_string() == text
  assert (read.position_offset, read.pooler_act) == (0, "tanh")
