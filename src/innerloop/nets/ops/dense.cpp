// Inner steps of a fully connected network on many tasks at once and the chain back through them; its last maps and their gradient.
//
// A lane of a vector is a task: every product is one of vectors, entry by entry, and nothing is ever summed across lanes.
// With parameters w_t before step t, g_t the gradient of its loss and H_t the Hessian,
//
//   forward   w_{t+1} = w_t - lr g_t, and a tape           backward   v <- v - lr H_t v, from the last step to the first
//
// A matrix of a layer is (out, in) as torch has it; maps are (width, samples). Threads take whole groups of lanes, and what
// tasks give is summed in their order, so nothing depends on how many threads there are. Only plain C is exported.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace {

using Index = std::ptrdiff_t;

struct Steps {  // as innerloop/nets/ops/dense.py declares it
  int64_t tasks, samples, layers, steps, through, labels, threads;
  double lr, scale, slope;
};

#if defined(__AVX512F__)
constexpr int BYTES = 64, ROWS = 4;
#elif defined(__AVX__)
constexpr int BYTES = 32, ROWS = 2;
#else
constexpr int BYTES = 16, ROWS = 2;
#endif
constexpr int COLUMNS = 5;  // of a tile whose sums stay in registers
template <class T> using Vector __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias)) = T;
template <class T> constexpr Index LANES = BYTES / sizeof(T);

template <class T> struct Matrix {  // of vectors: entry (i, j) is at i * row + j * column
  Vector<T>* at;
  Index row, column;
  Vector<T>& operator()(Index i, Index j) const { return at[i * row + j * column]; }
  Matrix turned() const { return {at, column, row}; }
};

template <class T, int I, int J> void tile(Matrix<T> c, Matrix<T> a, Matrix<T> b, Index i, Index j, Index inner, bool add) {
  Vector<T> sum[I][J];
#pragma GCC unroll 4
  for (int r = 0; r < I; r++)
#pragma GCC unroll 5
    for (int s = 0; s < J; s++) sum[r][s] = add ? c(i + r, j + s) : Vector<T>{};
  for (Index k = 0; k < inner; k++) {
    Vector<T> x[I];
#pragma GCC unroll 4
    for (int r = 0; r < I; r++) x[r] = a(i + r, k);
#pragma GCC unroll 5
    for (int s = 0; s < J; s++) {
      const Vector<T> y = b(k, j + s);
#pragma GCC unroll 4
      for (int r = 0; r < I; r++) sum[r][s] += x[r] * y;
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < I; r++)
#pragma GCC unroll 5
    for (int s = 0; s < J; s++) c(i + r, j + s) = sum[r][s];
}

// C (rows, columns) = A B, or added to what is there.
template <class T> void multiply(Matrix<T> c, Matrix<T> a, Matrix<T> b, Index rows, Index inner, Index columns, bool add) {
  for (Index i = 0; i < rows;) {
    const bool whole = i + ROWS <= rows;
    for (Index j = 0; j < columns;) {
      const bool wide = j + COLUMNS <= columns;
      if (whole && wide) tile<T, ROWS, COLUMNS>(c, a, b, i, j, inner, add);
      else if (whole) tile<T, ROWS, 1>(c, a, b, i, j, inner, add);
      else if (wide) tile<T, 1, COLUMNS>(c, a, b, i, j, inner, add);
      else tile<T, 1, 1>(c, a, b, i, j, inner, add);
      j += wide ? COLUMNS : 1;
    }
    i += whole ? ROWS : 1;
  }
}

// What a group of tasks keeps of a step: parameters, maps of every layer (the last one: predictions), gradients in them.
template <class T> struct Layout {
  Steps how;
  std::vector<Index> width, weight, bias, map;  // where they begin, in vectors
  Index params = 0, maps = 0;
  Layout(const Steps& how, const int64_t* sizes) : how(how), width(sizes, sizes + how.layers + 1) {
    map.push_back(0);
    for (Index l = 0; l < how.layers; l++) {
      weight.push_back(params), bias.push_back(params + width[l] * width[l + 1]);
      params = bias.back() + width[l + 1];
      map.push_back(maps), maps += width[l + 1] * how.samples;
    }
  }
  Index step() const { return params + 2 * maps; }
  Index groups() const { return (how.tasks + LANES<T> - 1) / LANES<T>; }
  Index group() const { return how.steps * step(); }
  Matrix<T> matrix(Vector<T>* p, Index l) const { return {p + weight[l], width[l], 1}; }
  Matrix<T> of(Vector<T>* maps_at, Index l) const { return {maps_at + map[l], how.samples, 1}; }  // after layer l - 1
};

// A square of vectors is transposed: lane j of vector i is lane i of vector j.
template <class T> void turn(Vector<T>* square) {
#pragma GCC unroll 4
  for (Index w = LANES<T> / 2; w; w /= 2)
#pragma GCC unroll 16
    for (Index i = 0; i < LANES<T>; i++) {
      if (i & w) continue;
      const Vector<T> a = square[i], b = square[i + w];
      for (Index k = 0; k < LANES<T>; k++) square[i][k] = k & w ? b[k - w] : a[k];
      for (Index k = 0; k < LANES<T>; k++) square[i + w][k] = k & w ? b[k] : a[k + w];
    }
}

// Entry j of the tasks of a group, whose rows begin at `from`, is vector place(j); lanes without a task are zero.
template <class T, class P> void load(const T* from, Index row, Index first, Index count, Index tasks, Vector<T>* to, P place) {
  for (Index j = 0; j < count; j += LANES<T>) {
    Vector<T> square[LANES<T>];
    const Index wide = std::min(LANES<T>, count - j);
    for (Index t = 0; t < LANES<T>; t++) {
      square[t] = Vector<T>{};
      if (first + t < tasks) std::copy_n(from + (first + t) * row + j, wide, reinterpret_cast<T*>(square + t));
    }
    turn<T>(square);
    for (Index k = 0; k < wide; k++) to[place(j + k)] = square[k];
  }
}

// The other way round.
template <class T, class P> void store(const Vector<T>* from, P place, Index first, Index count, Index tasks, T* to, Index row) {
  for (Index j = 0; j < count; j += LANES<T>) {
    Vector<T> square[LANES<T>];
    const Index wide = std::min(LANES<T>, count - j);
    for (Index k = 0; k < LANES<T>; k++) square[k] = k < wide ? from[place(j + k)] : Vector<T>{};
    turn<T>(square);
    for (Index t = 0; t < LANES<T> && first + t < tasks; t++)
      std::copy_n(reinterpret_cast<const T*>(square + t), wide, to + (first + t) * row + j);
  }
}

const auto in_order = [](Index j) { return j; };
// Place in maps (width, samples) of an entry of (samples, width).
auto as_map(Index samples, Index width) { return [=](Index j) { return j % width * samples + j / width; }; }

// The slope of the activation where a map has these values.
template <class T> Vector<T> slope_at(const Vector<T>& h, T slope) { return h > 0 ? Vector<T>{} + 1 : Vector<T>{} + slope; }

// Z = W H + b of layer l, for maps or for what they move by; H is the input of the layer.
template <class T> void layer(const Layout<T>& of, Index l, Vector<T>* p, Matrix<T> h, Matrix<T> z, bool add) {
  for (Index o = 0; o < of.width[l + 1]; o++)
    for (Index s = 0; s < of.how.samples; s++) z(o, s) = (add ? z(o, s) : Vector<T>{}) + p[of.bias[l] + o];
  multiply<T>(z, of.matrix(p, l), h, of.width[l + 1], of.width[l], of.how.samples, true);
}

template <class T> void softmax(Matrix<T> z, Index ways, Index samples) {
  for (Index s = 0; s < samples; s++)
    for (Index t = 0; t < LANES<T>; t++) {
      T top = z(0, s)[t], sum = 0;
      for (Index o = 1; o < ways; o++) top = std::max(top, T(z(o, s)[t]));
      for (Index o = 0; o < ways; o++) sum += z(o, s)[t] = std::exp(z(o, s)[t] - top);
      for (Index o = 0; o < ways; o++) z(o, s)[t] /= sum;
    }
}

// The gradient of layer l: weights and bias, from those in its map; the input of the layer is h.
template <class T> void weight_gradient(const Layout<T>& of, Index l, Matrix<T> d, Matrix<T> h, Vector<T>* to, bool add) {
  multiply<T>(of.matrix(to, l), d, h.turned(), of.width[l + 1], of.how.samples, of.width[l], add);
  for (Index o = 0; o < of.width[l + 1] && !add; o++) {
    Vector<T> sum{};
    for (Index s = 0; s < of.how.samples; s++) sum += d(o, s);
    to[of.bias[l] + o] = sum;
  }
}

// Maps of all layers at the parameters on the tape; so many layers have the activation.
template <class T> void see(const Layout<T>& of, Vector<T>* x, Vector<T>* tape, Index active) {
  const Index n = of.how.samples;
  Vector<T>* maps = tape + of.params;
  for (Index l = 0; l < of.how.layers; l++) {
    Matrix<T> z = of.of(maps, l + 1);
    layer<T>(of, l, tape, l ? of.of(maps, l) : Matrix<T>{x, n, 1}, z, false);
    for (Index j = 0; j < of.width[l + 1] * n && l < active; j++) z.at[j] *= slope_at<T>(z.at[j], T(of.how.slope));
  }
}

// The gradient in the parameters, from that in the last layer before its activation, which is on the tape.
template <class T> void pull(const Layout<T>& of, Vector<T>* x, Vector<T>* tape, Vector<T>* grad) {
  const Index last = of.how.layers, n = of.how.samples;
  Vector<T> *p = tape, *maps = tape + of.params, *deltas = maps + of.maps;
  auto input = [&](Index l) { return l ? of.of(maps, l) : Matrix<T>{x, n, 1}; };
  for (Index l = last - 1; l >= 0; l--) {
    weight_gradient<T>(of, l, of.of(deltas, l + 1), input(l), grad, false);
    if (!l) break;
    Matrix<T> before = of.of(deltas, l), h = of.of(maps, l);
    multiply<T>(before, of.matrix(p, l).turned(), of.of(deltas, l + 1), of.width[l], of.width[l + 1], n, false);
    for (Index j = 0; j < of.width[l] * n; j++) before.at[j] *= slope_at<T>(h.at[j], T(of.how.slope));
  }
}

// One step of a group: the gradient at the parameters on the tape, into `grad`.
template <class T> void gradient(const Layout<T>& of, Vector<T>* x, const Vector<T>* y, Vector<T>* tape, Vector<T>* grad) {
  const Index last = of.how.layers, n = of.how.samples;
  see<T>(of, x, tape, last - 1);
  Matrix<T> out = of.of(tape + of.params, last), d = of.of(tape + of.params + of.maps, last);
  if (of.how.labels) softmax<T>(out, of.width[last], n);
  for (Index j = 0; j < of.width[last] * n; j++) d.at[j] = T(of.how.scale) * (out.at[j] - y[j]);
  pull<T>(of, x, tape, grad);
}

// The Hessian of a step's loss times v; `moves` has room for two sets of maps.
template <class T> void hessian_times(const Layout<T>& of, Vector<T>* x, Vector<T>* tape, Vector<T>* v, Vector<T>* moves, Vector<T>* out) {
  const Index last = of.how.layers, n = of.how.samples;
  const T slope = T(of.how.slope), scale = T(of.how.scale);
  Vector<T> *p = tape, *maps = tape + of.params, *deltas = maps + of.maps, *turns = moves + of.maps;
  auto input = [&](Index l) { return l ? of.of(maps, l) : Matrix<T>{x, n, 1}; };
  for (Index l = 0; l < last; l++) {
    Matrix<T> z = of.of(moves, l + 1);
    layer<T>(of, l, v, input(l), z, false);
    if (l) multiply<T>(z, of.matrix(p, l), of.of(moves, l), of.width[l + 1], of.width[l], n, true);
    for (Index j = 0; j < of.width[l + 1] * n && l + 1 < last; j++) z.at[j] *= slope_at<T>(of.of(maps, l + 1).at[j], slope);
  }
  Matrix<T> moved = of.of(moves, last), seen = of.of(maps, last), turned = of.of(turns, last);
  for (Index s = 0; s < n; s++) {
    Vector<T> mean{};
    for (Index o = 0; o < of.width[last] && of.how.labels; o++) mean += seen(o, s) * moved(o, s);
    for (Index o = 0; o < of.width[last]; o++) turned(o, s) = scale * (of.how.labels ? seen(o, s) * (moved(o, s) - mean) : moved(o, s));
  }
  for (Index l = last - 1; l >= 0; l--) {
    Matrix<T> t = of.of(turns, l + 1), d = of.of(deltas, l + 1);
    weight_gradient<T>(of, l, t, input(l), out, false);
    if (!l) break;
    weight_gradient<T>(of, l, d, of.of(moves, l), out, true);
    Matrix<T> before = of.of(turns, l);
    multiply<T>(before, of.matrix(p, l).turned(), t, of.width[l], of.width[l + 1], n, false);
    multiply<T>(before, of.matrix(v, l).turned(), d, of.width[l], of.width[l + 1], n, true);
    for (Index j = 0; j < of.width[l] * n; j++) before.at[j] *= slope_at<T>(of.of(maps, l).at[j], slope);
  }
}

template <class F> void each_group(Index groups, Index threads, F f) {
  const Index count = std::min(groups, threads);
  auto share = [&](Index me) { for (Index g = me; g < groups; g += count) f(g); };
  std::vector<std::thread> others;
  for (Index i = 1; i < count; i++) others.emplace_back(share, i);
  share(0);
  for (std::thread& other : others) other.join();
}

template <class T> struct Room {  // of a thread, which keeps it
  std::vector<T> memory;
  Vector<T>* get(Index vectors) {
    memory.resize(std::max(memory.size(), size_t((vectors + 1) * LANES<T>)));
    return reinterpret_cast<Vector<T>*>((reinterpret_cast<uintptr_t>(memory.data()) + BYTES - 1) / BYTES * BYTES);
  }
};

template <class T> void forward(const Steps& how, const int64_t* sizes, const T* params, const T* x, const T* y, T* adapted, T* kept) {
  const Layout<T> of(how, sizes);
  each_group(of.groups(), how.threads, [&](Index g) {
    static thread_local Room<T> room;
    const Index first = g * LANES<T>, n = how.samples, inputs = of.width[0] * n, outputs = of.width[how.layers] * n;
    Vector<T>*in = room.get(inputs + outputs + 2 * of.params), *targets = in + inputs, *grad = targets + outputs, *now = grad + of.params;
    load<T>(x, inputs, first, inputs, how.tasks, in, as_map(n, of.width[0]));
    load<T>(y, outputs, first, outputs, how.tasks, targets, as_map(n, of.width[how.layers]));
    for (Index j = 0; j < of.params; j++) now[j] = Vector<T>{} + params[j];
    for (Index t = 0; t < how.steps; t++) {
      Vector<T>* tape = reinterpret_cast<Vector<T>*>(kept) + g * of.group() + t * of.step();
      std::copy(now, now + of.params, tape);
      gradient<T>(of, in, targets, tape, grad);
      for (Index j = 0; j < of.params; j++) now[j] -= T(how.lr) * grad[j];
    }
    store<T>(now, in_order, first, of.params, how.tasks, adapted, of.params);
  });
}

template <class T> void backward(const Steps& how, const int64_t* sizes, const T* x, const T* kept, const T* arriving, T* each, T* out) {
  const Layout<T> of(how, sizes);
  each_group(of.groups(), how.threads, [&](Index g) {
    static thread_local Room<T> room;
    const Index first = g * LANES<T>, inputs = of.width[0] * how.samples;
    Vector<T>*in = room.get(inputs + 2 * of.params + 2 * of.maps), *v = in + inputs, *turned = v + of.params, *moves = turned + of.params;
    load<T>(x, inputs, first, inputs, how.tasks, in, as_map(how.samples, of.width[0]));
    load<T>(arriving, of.params, first, of.params, how.tasks, v, in_order);
    for (Index t = how.steps - 1; t >= how.steps - how.through; t--) {
      Vector<T>* tape = reinterpret_cast<Vector<T>*>(const_cast<T*>(kept)) + g * of.group() + t * of.step();
      hessian_times<T>(of, in, tape, v, moves, turned);
      for (Index j = 0; j < of.params; j++) v[j] -= T(how.lr) * turned[j];
    }
    store<T>(v, in_order, first, of.params, how.tasks, each, of.params);
  });
  std::fill(out, out + of.params, T(0));
  for (Index t = 0; t < how.tasks; t++)
    for (Index j = 0; j < of.params; j++) out[j] += each[t * of.params + j];
}

// The last maps of tasks with parameters of their own, all layers with the activation. Weight and bias of every layer:
// entries of one task lie together, those of the next begin `rows` entries later.
template <class T> void features(const Steps& how, const int64_t* sizes, const T* const* params, const int64_t* rows, const T* x, T* out, T* kept) {
  const Layout<T> of(how, sizes);
  each_group(of.groups(), how.threads, [&](Index g) {
    static thread_local Room<T> room;
    const Index first = g * LANES<T>, n = how.samples, inputs = of.width[0] * n, outputs = of.width[how.layers] * n;
    Vector<T>*in = room.get(inputs), *tape = reinterpret_cast<Vector<T>*>(kept) + g * of.step();
    load<T>(x, inputs, first, inputs, how.tasks, in, as_map(n, of.width[0]));
    for (Index l = 0; l < how.layers; l++) {
      load<T>(params[2 * l], rows[2 * l], first, of.width[l] * of.width[l + 1], how.tasks, tape + of.weight[l], in_order);
      load<T>(params[2 * l + 1], rows[2 * l + 1], first, of.width[l + 1], how.tasks, tape + of.bias[l], in_order);
    }
    see<T>(of, in, tape, how.layers);
    store<T>(of.of(tape + of.params, how.layers).at, as_map(n, of.width[how.layers]), first, outputs, how.tasks, out, outputs);
  });
}

template <class T> void pull_features(const Steps& how, const int64_t* sizes, const T* x, const T* kept, const T* arriving, T* grads) {
  const Layout<T> of(how, sizes);
  each_group(of.groups(), how.threads, [&](Index g) {
    static thread_local Room<T> room;
    const Index first = g * LANES<T>, n = how.samples, inputs = of.width[0] * n, outputs = of.width[how.layers] * n;
    Vector<T>*in = room.get(inputs + of.params), *grad = in + inputs;
    Vector<T>* tape = reinterpret_cast<Vector<T>*>(const_cast<T*>(kept)) + g * of.step();
    load<T>(x, inputs, first, inputs, how.tasks, in, as_map(n, of.width[0]));
    Matrix<T> out = of.of(tape + of.params, how.layers), d = of.of(tape + of.params + of.maps, how.layers);
    load<T>(arriving, outputs, first, outputs, how.tasks, d.at, as_map(n, of.width[how.layers]));
    for (Index j = 0; j < outputs; j++) d.at[j] *= slope_at<T>(out.at[j], T(how.slope));
    pull<T>(of, in, tape, grad);
    store<T>(grad, in_order, first, of.params, how.tasks, grads, of.params);
  });
}

}  // namespace

#define EXPORT(T, NAME)                                                                                                     \
  extern "C" int64_t dense_tape_##NAME(const Steps* how, const int64_t* sizes) {                                            \
    const Layout<T> of(*how, sizes);                                                                                        \
    return of.groups() * of.group() * LANES<T>;                                                                             \
  }                                                                                                                         \
  extern "C" void dense_forward_##NAME(const Steps* how, const int64_t* sizes, const T* params, const T* x, const T* y,     \
                                       T* adapted, T* tape) {                                                               \
    forward<T>(*how, sizes, params, x, y, adapted, tape);                                                                   \
  }                                                                                                                         \
  extern "C" void dense_backward_##NAME(const Steps* how, const int64_t* sizes, const T* x, const T* tape,                  \
                                        const T* arriving, T* each, T* out) {                                               \
    backward<T>(*how, sizes, x, tape, arriving, each, out);                                                                 \
  }                                                                                                                         \
  extern "C" void dense_features_##NAME(const Steps* how, const int64_t* sizes, const T* const* params, const int64_t* rows, \
                                        const T* x, T* out, T* tape) {                                                      \
    features<T>(*how, sizes, params, rows, x, out, tape);                                                                   \
  }                                                                                                                         \
  extern "C" void dense_pull_##NAME(const Steps* how, const int64_t* sizes, const T* x, const T* tape, const T* arriving,   \
                                    T* grads) {                                                                             \
    pull_features<T>(*how, sizes, x, tape, arriving, grads);                                                                \
  }
EXPORT(float, float32)
EXPORT(double, float64)
