// The features of a convolutional network, their gradient, and the gradient of that gradient, written out.
//
// A network is so many blocks of convolution, normalisation, ReLU and, perhaps, 2x2 max pooling. With f the features,
// J their Jacobian in the parameters, g a cotangent of f and v a direction in the parameters:
//
//   forward   f, and a tape           backward   J'g            tangent   Jv           second   d(J'g) along v  +  J'c
//
// Maps are stored channels last, with a border of zeros and channels filled up to whole vectors, so that a convolution is
// a product whose rows are read in place: no patches are laid out. Per-pixel work is fused into one pass each. One thread
// does a call from beginning to end, so nothing depends on how many there are. Only plain C is exported.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

namespace {

using Index = std::ptrdiff_t;
enum Norm { NONE, BATCH, GIVEN, GROUP };

struct Network {  // as innerloop/nets/ops/engine.py declares it
  int32_t depth, channels, height, width, filters, kernel, stride, pool, norm, groups;
  double eps;
};

// ---- products, whose sums stay in registers ----

#if defined(__AVX512F__)
constexpr int BYTES = 64;
#elif defined(__AVX__)
constexpr int BYTES = 32;
#else
constexpr int BYTES = 16;
#endif
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int ROWS = 14, OUTER_ROWS = 12;  // of a tile of up to two vectors: as many as there are registers for
#else
constexpr int ROWS = 6, OUTER_ROWS = 6;
#endif
template <class T> using Vector __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias)) = T;
template <class T> constexpr Index LANES = BYTES / sizeof(T);
template <class T> Index filled_up(Index n) { return (n + LANES<T> - 1) / LANES<T> * LANES<T>; }

template <class T> struct Factors {  // a map, and weights or another map
  const T *a, *b;
};

// A tile of  C[r] = sum over terms of  a's row r  times  b (runs * length, width).  A row of a is in runs, `step` apart.
template <class T, int NV>
void tile(const Factors<T>* terms, int count, const Index* at, Index runs, Index step, Index length, Index width, Vector<T> (&sum)[ROWS][NV]) {
#pragma GCC unroll 14
  for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 2
    for (int v = 0; v < NV; v++) sum[r][v] = Vector<T>{};
  for (int t = 0; t < count; t++) {
    const T* b = terms[t].b;
    for (Index run = 0; run < runs; run++) {
      const T* a[ROWS];
#pragma GCC unroll 14
      for (int r = 0; r < ROWS; r++) a[r] = terms[t].a + at[r] + run * step;
#pragma GCC unroll 4
      for (Index i = 0; i < length; i++, b += width) {
        Vector<T> w[NV];
#pragma GCC unroll 2
        for (int v = 0; v < NV; v++) w[v] = *reinterpret_cast<const Vector<T>*>(b + v * LANES<T>);
#pragma GCC unroll 14
        for (int r = 0; r < ROWS; r++) {
          const Vector<T> x = a[r][i] - Vector<T>{};
#pragma GCC unroll 2
          for (int v = 0; v < NV; v++) sum[r][v] += x * w[v];
        }
      }
    }
  }
}

template <class T> struct Rows {  // of a product: where those of a begin, and those of C; runs of a row
  const Index *at, *to;
  Index count, runs, step, length;
};

// The columns from `first` of C, in tiles of NV vectors; C has `columns` columns, b has them filled up to `width`.
template <class T, int NV> void panel(const Factors<T>* terms, int count, const Rows<T>& rows, Index first, Index width, Index columns, T* c) {
  Factors<T> shifted[2];
  for (int t = 0; t < count; t++) shifted[t] = {terms[t].a, terms[t].b + first};
  for (Index row = 0; row < rows.count; row += ROWS) {
    Index at[ROWS];
    for (int r = 0; r < ROWS; r++) at[r] = rows.at[std::min(row + r, rows.count - 1)];
    Vector<T> sum[ROWS][NV];
    tile<T, NV>(shifted, count, at, rows.runs, rows.step, rows.length, width, sum);
#pragma GCC unroll 14
    for (int r = 0; r < ROWS; r++) {
      if (row + r >= rows.count) break;
      T* to = c + rows.to[row + r] + first;
      if (first + NV * LANES<T> <= columns) {
#pragma GCC unroll 2
        for (int v = 0; v < NV; v++) *reinterpret_cast<Vector<T>*>(to + v * LANES<T>) = sum[r][v];
      } else {
        for (Index j = 0; j < columns - first; j++) to[j] = sum[r][j / LANES<T>][j % LANES<T>];
      }
    }
  }
}

// C (rows, columns) = sum over terms of  a b.
template <class T> void multiply(const Factors<T>* terms, int count, const Rows<T>& rows, Index width, Index columns, T* c) {
  Index first = 0;
  for (; first + 2 * LANES<T> <= width; first += 2 * LANES<T>) panel<T, 2>(terms, count, rows, first, width, columns, c);
  if (first < width) panel<T, 1>(terms, count, rows, first, width, columns, c);
}

// COUNT rows of  C (length, width) += sum over terms and pixels of  a[pixel] (length) times b[pixel] (width).
template <class T, int NV, int COUNT>
void outer_tile(const Factors<T>* terms, int count, const Index* at, const Index* from, Index pixels, Index shift, Index first, Index width, T* c) {
  Vector<T> sum[COUNT][NV];
#pragma GCC unroll 14
  for (int r = 0; r < COUNT; r++)
#pragma GCC unroll 2
    for (int v = 0; v < NV; v++) sum[r][v] = *reinterpret_cast<const Vector<T>*>(c + r * width + v * LANES<T>);
  for (int t = 0; t < count; t++)
#pragma GCC unroll 4
    for (Index p = 0; p < pixels; p++) {
      const T *a = terms[t].a + at[p] + shift, *b = terms[t].b + from[p] + first;
      Vector<T> w[NV];
#pragma GCC unroll 2
      for (int v = 0; v < NV; v++) w[v] = *reinterpret_cast<const Vector<T>*>(b + v * LANES<T>);
#pragma GCC unroll 14
      for (int r = 0; r < COUNT; r++) {
        const Vector<T> x = a[r] - Vector<T>{};
#pragma GCC unroll 2
        for (int v = 0; v < NV; v++) sum[r][v] += x * w[v];
      }
    }
#pragma GCC unroll 14
  for (int r = 0; r < COUNT; r++)
#pragma GCC unroll 2
    for (int v = 0; v < NV; v++) *reinterpret_cast<Vector<T>*>(c + r * width + v * LANES<T>) = sum[r][v];
}
template <class T, int NV>
void outer_run(const Factors<T>* terms, int count, const Index* at, const Index* from, Index pixels, Index shift, Index length, Index first, Index width, T* c) {
  Index i = 0;
  for (; i + OUTER_ROWS <= length; i += OUTER_ROWS) outer_tile<T, NV, OUTER_ROWS>(terms, count, at, from, pixels, shift + i, first, width, c + i * width + first);
  for (; i + 3 <= length; i += 3) outer_tile<T, NV, 3>(terms, count, at, from, pixels, shift + i, first, width, c + i * width + first);
  for (; i < length; i++) outer_tile<T, NV, 1>(terms, count, at, from, pixels, shift + i, first, width, c + i * width + first);
}

constexpr Index PIXELS = 96;  // of which the sums of a tile stay in registers, and the maps in the first-level cache

// C (runs * length, width) += sum over terms and pixels of  a[pixel] (in runs, `step` apart) times b[pixel].
template <class T>
void multiply_outer(const Factors<T>* terms, int count, const Index* at, const Index* from, Index pixels, Index runs, Index step, Index length, Index width, T* c) {
  for (Index p = 0; p < pixels; p += PIXELS) {
    const Index some = std::min(PIXELS, pixels - p);
    for (Index run = 0; run < runs; run++) {
      T* to = c + run * length * width;
      Index first = 0;
      for (; first + 2 * LANES<T> <= width; first += 2 * LANES<T>) outer_run<T, 2>(terms, count, at + p, from + p, some, run * step, length, first, width, to);
      if (first < width) outer_run<T, 1>(terms, count, at + p, from + p, some, run * step, length, first, width, to);
    }
  }
}

// ---- memory: buffers only grow, and tapes are used again ----

template <class T> struct Buffer {
  T* data = nullptr;
  size_t size = 0;
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  ~Buffer() { std::free(data); }
  T* get(size_t n) {
    if (n > size) {
      std::free(data);
      data = static_cast<T*>(std::aligned_alloc(64, (n * sizeof(T) + 63) / 64 * 64));
      size = n;
    }
    return data;
  }
};

struct Geometry {  // of one block; `c` and `o` are channels as they are stored
  Index n, c, h, w, o, k, stride, pad, oh, ow, taps, ph, pw;
  Index border;      // of zeros around what the block gives
  Index before, dh, dw;  // of the gradient in z with its border, for the transposed convolution
  Index images;      // that are worked on at a time
  Index pixels() const { return n * oh * ow; }
  Index places() const { return n * ph * pw; }  // after pooling
  Index row() const { return (w + 2 * pad) * c; }
  Index in_size() const { return (h + 2 * pad) * row(); }  // of a picture with its border
  Index out_size() const { return (ph + 2 * border) * (pw + 2 * border) * o; }
  Index gradient_size() const { return dh * dw * o; }
};

constexpr Index CHUNK = 1 << 17;  // values of a map that are worked on at a time: they fit the second-level cache
constexpr int BLOCK = 64;         // rows that are summed by themselves, for accuracy

template <class T> Geometry geometry(const Network& net, Index n, int layer) {
  Geometry g{};
  Index h = net.height, w = net.width;
  for (int i = 0; i <= layer; i++) {
    g.n = n, g.c = i ? g.o : net.channels, g.h = h, g.w = w, g.o = filled_up<T>(net.filters);
    g.k = net.kernel, g.stride = net.stride, g.pad = g.k / 2, g.taps = g.k * g.k * g.c;
    g.oh = (h + 2 * g.pad - g.k) / g.stride + 1, g.ow = (w + 2 * g.pad - g.k) / g.stride + 1;
    g.ph = net.pool ? g.oh / 2 : g.oh, g.pw = net.pool ? g.ow / 2 : g.ow;
    g.border = i + 1 < net.depth ? g.pad : 0;
    g.before = g.pad / g.stride;
    g.dh = g.before + std::max(g.oh, (h - 1 + g.pad) / g.stride + 1), g.dw = g.before + std::max(g.ow, (w - 1 + g.pad) / g.stride + 1);
    g.images = std::max<Index>(1, std::min(n, CHUNK / (g.oh * g.ow * g.o)));
    h = g.ph, w = g.pw;
  }
  return g;
}

// Pixels of the input whose gradient comes from the same taps: rows of a product with the gradient in z.
struct Phase {
  std::vector<Index> at, to;
  Index runs, length;   // taps along a column, values along a row
  Index first_y, first_x;  // the last tap of either, which sees the first pixel of z
  Index weights;        // where those of this phase begin
};

std::vector<Phase> phases_of(const Geometry& g, Index columns) {
  std::vector<Phase> phases;
  Index weights = 0;
  for (Index ry = 0; ry < g.stride; ry++)
    for (Index rx = 0; rx < g.stride; rx++) {
      const Index ty = ry < g.k ? (g.k - 1 - ry) / g.stride + 1 : 0, tx = rx < g.k ? (g.k - 1 - rx) / g.stride + 1 : 0;
      const bool any = ty > 0 && tx > 0;
      Phase phase{{}, {}, any ? ty : 0, any ? tx * g.o : 0, ry + (ty - 1) * g.stride, rx + (tx - 1) * g.stride, weights};
      for (Index i = 0; i < g.images; i++)
        for (Index y = 0; y < g.h; y++)
          for (Index x = 0; x < g.w; x++) {
            if ((y + g.pad) % g.stride != ry || (x + g.pad) % g.stride != rx) continue;
            const Index dy = (y + g.pad - phase.first_y) / g.stride + g.before, dx = (x + g.pad - phase.first_x) / g.stride + g.before;
            phase.at.push_back(any ? ((i * g.dh + dy) * g.dw + dx) * g.o : 0);
            phase.to.push_back(((i * g.h + y) * g.w + x) * columns);
          }
      weights += phase.runs * phase.length;
      phases.push_back(std::move(phase));
    }
  return phases;
}

// ---- what a pass keeps ----

template <class T> struct Layer {
  Geometry g;
  std::vector<Index> window, place_of, row_of;  // of the pixels of z: in the input, in the gradient with its border, in z
  std::vector<Phase> phases;
  Buffer<T> weight, back, scale, shift, z, y, mean, inverse;
  Buffer<uint8_t> which;  // pixel of a pooled place
};
template <class T> struct Tape {
  Network net;
  Index n;
  Buffer<T> x;
  std::vector<Layer<T>> layers;
  Index sets() const { return net.norm == GROUP ? n : 1; }              // of samples that share statistics
  Index channels_of_a_set() const { return net.norm == GROUP ? net.filters / net.groups : 1; }
};
template <class T> struct Cotangents {  // of a backward pass that is differentiated again
  std::vector<Buffer<T>> at_place, sum, dot, m1, m2;
};
template <class T> struct Tangents {
  std::vector<Buffer<T>> weight, scale, shift, z, y, mean, dot;
};
template <class T> struct Scratch {
  Buffer<T> rows, rows2, sums, wide, one, other, back, gradient;                         // of a pass
  Buffer<T> chain, direction, step, features_in, outputs_in, gradient_in;                 // of a descent
};
template <class T> Scratch<T>& scratch() {
  static thread_local Scratch<T> mine;
  return mine;
}

template <class S> struct Pool {  // of states that are not in use, so that their memory is touched once
  std::mutex lock;
  std::vector<std::unique_ptr<S>> idle;
  S* take() {
    std::lock_guard<std::mutex> guard(lock);
    if (idle.empty()) return new S;
    S* state = idle.back().release();
    idle.pop_back();
    return state;
  }
  void give(S* state) {
    std::lock_guard<std::mutex> guard(lock);
    idle.emplace_back(state);
  }
};
template <class S> Pool<S>& pool() {
  static Pool<S> states;
  return states;
}

// ---- layouts ----

// Weights: torch has (out, in, kernel, kernel), here it is (kernel, kernel, in, out) with channels filled up.
template <class T> void turn_weight(const Geometry& g, Index filters, Index channels, const T* from, T* to) {
  const Index kk = g.k * g.k;
  if (filters < g.o || channels < g.c) std::memset(to, 0, g.taps * g.o * sizeof(T));
  for (Index first = 0; first < filters; first += LANES<T>)
    for (Index c = 0; c < channels; c++)
      for (Index t = 0; t < kk; t++)
        for (Index o = first; o < std::min(first + LANES<T>, filters); o++) to[(t * g.c + c) * g.o + o] = from[(o * channels + c) * kk + t];
}
template <class T> void turn_weight_back(const Geometry& g, Index filters, Index channels, const T* from, T* to) {
  const Index kk = g.k * g.k;
  for (Index first = 0; first < filters; first += LANES<T>)
    for (Index c = 0; c < channels; c++)
      for (Index t = 0; t < kk; t++)
        for (Index o = first; o < std::min(first + LANES<T>, filters); o++) to[(o * channels + c) * kk + t] = from[(t * g.c + c) * g.o + o];
}
// For the transposed convolution: of every phase (its taps from the last to the first, out, in).
template <class T> void transpose_weight(const Geometry& g, const std::vector<Phase>& phases, const T* from, Index width, T* to) {
  if (g.c < width) std::memset(to, 0, g.k * g.k * g.o * width * sizeof(T));
  for (const Phase& phase : phases) {
    T* at = to + phase.weights * width;
    for (Index i = 0; i < phase.runs; i++)
      for (Index j = 0; j < phase.length / g.o; j++, at += g.o * width) {
        const T* tap = from + ((phase.first_y - i * g.stride) * g.k + phase.first_x - j * g.stride) * g.c * g.o;
        for (Index first = 0; first < g.o; first += LANES<T>)
          for (Index c = 0; c < g.c; c++)
            for (Index o = first; o < first + LANES<T>; o++) at[o * width + c] = tap[c * g.o + o];
      }
  }
}
// Features: torch has (channel, place) of a picture, here it is (place, channel).
template <class T> void turn_features(const Geometry& g, Index filters, const T* from, T* to, bool to_torch) {
  const Index places = g.ph * g.pw;
  for (Index n = 0; n < g.n; n++)
    for (Index p = 0; p < places; p++)
      for (Index c = 0; c < filters; c++) {
        const Index ours = (n * places + p) * g.o + c, theirs = (n * filters + c) * places + p;
        to[to_torch ? theirs : ours] = from[to_torch ? ours : theirs];
      }
}
// Pictures: torch has (channel, row, column), here it is (row, column, channel) with a border.
template <class T> void turn_pictures(const Geometry& g, const T* from, T* to) {
  std::memset(to, 0, g.n * g.in_size() * sizeof(T));
  for (Index n = 0; n < g.n; n++)
    for (Index c = 0; c < g.c; c++)
      for (Index y = 0; y < g.h; y++)
        for (Index x = 0; x < g.w; x++) to[n * g.in_size() + (y + g.pad) * g.row() + (x + g.pad) * g.c + c] = *from++;
}
template <class T> void clear_border(const Geometry& g, T* map) {
  const Index b = g.border, row = (g.pw + 2 * b) * g.o;
  for (Index n = 0; n < g.n && b; n++, map += g.out_size()) {
    std::memset(map, 0, b * row * sizeof(T)), std::memset(map + (b + g.ph) * row, 0, b * row * sizeof(T));
    for (Index y = b; y < b + g.ph; y++)
      std::memset(map + y * row, 0, b * g.o * sizeof(T)), std::memset(map + y * row + (b + g.pw) * g.o, 0, b * g.o * sizeof(T));
  }
}

// Calls f(first picture, how many) for every chunk of pictures that is worked on at a time.
template <class F> void each_chunk(const Geometry& g, F f) {
  for (Index first = 0; first < g.n; first += g.images) f(first, std::min(g.images, g.n - first));
}

// Convolutions of some pictures: z = sum over terms of  input * weights.
template <class T> void convolve(const Layer<T>& layer, const Factors<T>* terms, int count, Index first, Index images, T* z) {
  const Geometry& g = layer.g;
  const Index of_z = g.oh * g.ow * g.o;
  Factors<T> here[2];
  for (int t = 0; t < count; t++) here[t] = {terms[t].a + first * g.in_size(), terms[t].b};
  const Rows<T> rows{layer.window.data(), layer.row_of.data(), images * g.oh * g.ow, g.k, g.row(), g.k * g.c};
  multiply(here, count, rows, g.o, g.o, z + first * of_z);
}
// The transposed convolution of some pictures: gradients in their input, from those in z with a border.
template <class T>
void convolve_back(const Geometry& g, const std::vector<Phase>& phases, const Factors<T>* terms, int count, Index first, Index images, Index width, Index columns, T* to) {
  for (const Phase& phase : phases) {
    Factors<T> here[2];
    for (int t = 0; t < count; t++) here[t] = {terms[t].a, terms[t].b + phase.weights * width};
    const Index rows = Index(phase.at.size()) / g.images * images;
    multiply(here, count, Rows<T>{phase.at.data(), phase.to.data(), rows, phase.runs, g.dw * g.o, phase.length}, width, columns, to + first * g.h * g.w * columns);
  }
}
// Adds what some pictures give to the gradient in the weights; terms are (input of all pictures, gradient in z of these).
template <class T> void convolve_weight(const Layer<T>& layer, const Factors<T>* terms, int count, Index first, Index images, T* gradient) {
  const Geometry& g = layer.g;
  Factors<T> here[2];
  for (int t = 0; t < count; t++) here[t] = {terms[t].a + first * g.in_size(), terms[t].b};
  multiply_outer(here, count, layer.window.data(), layer.place_of.data(), images * g.oh * g.ow, g.k, g.row(), g.k * g.c, g.o, gradient);
}

// Per-channel sums of a set become means over its pixels; over all channels of its group for group norm.
template <class T> void means(const Tape<T>& tape, const Geometry& g, T* values) {
  const Index o = g.o, width = tape.channels_of_a_set();
  const T count = T(double(g.pixels()) / tape.sets() * width);
  for (Index s = 0; s < tape.sets(); s++)
    for (Index first = 0; first < tape.net.filters; first += width) {
      T total = 0;
      for (Index j = first; j < first + width; j++) total += values[s * o + j];
      for (Index j = first; j < first + width; j++) values[s * o + j] = total / count;
    }
}

template <class T> Vector<T>& lanes(T* values) { return *reinterpret_cast<Vector<T>*>(values); }
template <class T> const Vector<T>& lanes(const T* values) { return *reinterpret_cast<const Vector<T>*>(values); }
template <class T> using Bytes __attribute__((vector_size(BYTES / sizeof(T)), aligned(1), may_alias)) = uint8_t;
template <class T> using Mask = decltype(Vector<T>{} > Vector<T>{});
template <class T> Mask<T> widened(const uint8_t* bytes) {
  return __builtin_convertvector(*reinterpret_cast<const Bytes<T>*>(bytes), Mask<T>);
}

// The values of a map that places took: of a pixel each, or of one of four.
template <class T, bool POOLED> struct Taken {
  const T *a, *b, *c, *d;
  const uint8_t* which;
  Taken(const Layer<T>& layer, const T* maps, Index place, Index pixel)
      : a(maps + pixel * layer.g.o), b(a + layer.g.o), c(a + layer.g.ow * layer.g.o), d(c + layer.g.o), which(layer.which.data + place * layer.g.o) {}
  Vector<T> operator[](Index j) const {
    if constexpr (!POOLED) return lanes(a + j);
    const Mask<T> at = widened<T>(which + j), right = (at & 1) != 0, below = (at & 2) != 0;
    return below ? (right ? lanes(d + j) : lanes(c + j)) : (right ? lanes(b + j) : lanes(a + j));
  }
};

// Calls f(whether pooled, set, place, the same with its border, first pixel) for every place, samples in order.
template <class F> void each_place(const Geometry& g, bool pooled, Index sets, F f) {
  const Index b = g.border;
  auto each = [&](auto pool) {
    for (Index n = 0; n < g.n; n++)
      for (Index y = 0; y < g.ph; y++)
        for (Index x = 0; x < g.pw; x++) {
          const Index place = (n * g.ph + y) * g.pw + x, bordered = (n * (g.ph + 2 * b) + y + b) * (g.pw + 2 * b) + x + b;
          f(pool, sets > 1 ? n : 0, place, bordered, pool ? (n * g.oh + 2 * y) * g.ow + 2 * x : place);
        }
  };
  if (pooled) each(std::true_type());
  else each(std::false_type());
}

// Two sums per set and channel, of blocks of places that are summed by themselves.
template <class T> struct Sums {
  T *sum, *dot, *block_sum, *block_dot;
  Index o, per_set, rows = 0;
  Sums(T* sum, T* dot, Index sets, Index o, Index per_set)
      : sum(sum), dot(dot), block_sum(scratch<T>().sums.get(2 * o)), block_dot(block_sum + o), o(o), per_set(per_set) {
    std::fill(sum, sum + sets * o, T(0)), std::fill(dot, dot + sets * o, T(0)), std::fill(block_sum, block_sum + 2 * o, T(0));
  }
  void next(Index set, Index place) {
    if (++rows < BLOCK && (place + 1) % per_set) return;
    for (Index j = 0; j < o; j += LANES<T>) {
      lanes(sum + set * o + j) += lanes(block_sum + j), lanes(dot + set * o + j) += lanes(block_dot + j);
      lanes(block_sum + j) = lanes(block_dot + j) = Vector<T>{};
    }
    rows = 0;
  }
};

// Of some pictures  e·z + f·tz + c  everywhere,  + p·u + q·w  where a place took its value; with a border of zeros.
// Coefficients by set and channel; without a tangent (tz, q) there are no f and w.
template <class T> struct Dense {
  const T *z, *e, *tz, *f, *c, *p, *u, *q, *w;
};
template <class T, bool POOLED, bool MOVING> void dense_as(const Tape<T>& tape, const Layer<T>& layer, const Dense<T>& d, Index first, Index images, T* out) {
  const Geometry& g = layer.g;
  const Index o = g.o;
  for (Index line = first * g.oh; line < (first + images) * g.oh; line++) {
    const Index n = line / g.oh, y = line % g.oh, at = tape.sets() > 1 ? n * o : 0;
    for (Index x = 0; x < g.ow; x++) {
      const Index pixel = line * g.ow + x, place = POOLED ? ((n * g.ph + y / 2) * g.pw + x / 2) * o : pixel * o;
      const int32_t me = int32_t((y & 1) * 2 + (x & 1));
      const bool inside = !POOLED || (y < 2 * g.ph && x < 2 * g.pw);
      T* to = out + layer.place_of[pixel - first * g.oh * g.ow];
      for (Index j = 0; j < o; j += LANES<T>) {
        Vector<T> value = lanes(d.z + pixel * o + j) * lanes(d.e + at + j) + lanes(d.c + at + j), here{};
        if (MOVING) value += lanes(d.tz + pixel * o + j) * lanes(d.f + at + j);
        if (inside) here = lanes(d.p + place + j) * lanes(d.u + at + j);
        if (MOVING && inside) here += lanes(d.q + place + j) * lanes(d.w + at + j);
        if (POOLED && inside) here = widened<T>(layer.which.data + place + j) == me ? here : Vector<T>{};
        lanes(to + j) = value + here;
      }
    }
  }
}
template <class T> void dense(const Tape<T>& tape, const Layer<T>& layer, const Dense<T>& d, Index first, Index images, T* out) {
  auto fill = tape.net.pool ? (d.f ? dense_as<T, true, true> : dense_as<T, true, false>) : (d.f ? dense_as<T, false, true> : dense_as<T, false, false>);
  fill(tape, layer, d, first, images, out);
}
// The gradient in the biases: the sums of that in z.
template <class T> void to_bias(const Layer<T>& layer, Index filters, Index images, const T* gradient, T* bias) {
  for (Index pixel = 0; pixel < images * layer.g.oh * layer.g.ow; pixel++)
    for (Index j = 0; j < filters; j++) bias[j] += gradient[layer.place_of[pixel] + j];
}
template <class T> void add_bias(const Geometry& g, Index filters, const T* bias, T* z) {
  for (Index r = 0; r < g.pixels(); r++)
    for (Index j = 0; j < filters; j++) z[r * g.o + j] += bias[j];
}
template <class T> T* cleared(Buffer<T>& buffer, Index n) { return static_cast<T*>(std::memset(buffer.get(n), 0, n * sizeof(T))); }

// ---- forward ----

// Where the rows of a layer's products begin, for a chunk of pictures; only sizes decide that.
template <class T> void lay_out(Layer<T>& layer, const Geometry& g, bool back) {
  const bool same = !layer.window.empty() && std::memcmp(&layer.g, &g, sizeof(Geometry)) == 0;
  layer.g = g;
  if (same) return;
  layer.window.clear(), layer.place_of.clear(), layer.row_of.clear();
  for (Index i = 0; i < g.images; i++)
    for (Index y = 0; y < g.oh; y++)
      for (Index x = 0; x < g.ow; x++) {
        layer.row_of.push_back(Index(layer.row_of.size()) * g.o);
        layer.window.push_back(i * g.in_size() + y * g.stride * g.row() + x * g.stride * g.c);
        layer.place_of.push_back(i * g.gradient_size() + ((y + g.before) * g.dw + x + g.before) * g.o);
      }
  layer.phases = back ? phases_of(g, g.c) : std::vector<Phase>();
}

template <class T> void statistics(const Tape<T>& tape, Layer<T>& layer) {
  const Geometry& g = layer.g;
  const Index o = g.o, sets = tape.sets(), per = g.pixels() / sets, width = tape.channels_of_a_set();
  T *mean = scratch<T>().sums.get(2 * o), *var = mean + o;
  for (Index s = 0; s < sets; s++) {
    std::fill(mean, mean + 2 * o, T(0));
    for (Index first = 0; first < per; first += BLOCK) {  // Chan's update, block by block
      const Index rows = std::min<Index>(BLOCK, per - first);
      const T* z = layer.z.data + (s * per + first) * o;
      const T share = T(rows) / T(first + rows), cross = T(first) * share;
      for (Index j = 0; j < o; j += LANES<T>) {
        Vector<T> total{}, spread{};
        for (Index r = 0; r < rows; r++) total += lanes(z + r * o + j);
        total /= T(rows);
        for (Index r = 0; r < rows; r++) spread += (lanes(z + r * o + j) - total) * (lanes(z + r * o + j) - total);
        const Vector<T> gap = total - lanes(mean + j);
        lanes(mean + j) += gap * share, lanes(var + j) += spread + gap * gap * cross;
      }
    }
    for (Index j = tape.net.filters; j < o; j++) layer.mean.data[s * o + j] = 0, layer.inverse.data[s * o + j] = 1;
    for (Index first = 0; first < tape.net.filters; first += width) {
      T middle = 0, spread = 0;
      for (Index j = first; j < first + width; j++) middle += mean[j];
      middle /= T(width);
      for (Index j = first; j < first + width; j++) spread += var[j] / T(per) + (mean[j] - middle) * (mean[j] - middle);
      const T inverse = 1 / std::sqrt(spread / T(width) + T(tape.net.eps));
      for (Index j = first; j < first + width; j++) layer.mean.data[s * o + j] = middle, layer.inverse.data[s * o + j] = inverse;
    }
  }
}

template <class T> void activate(const Tape<T>& tape, Layer<T>& layer) {
  const Geometry& g = layer.g;
  const Index o = g.o, sets = tape.sets();
  T *A = scratch<T>().wide.get(2 * sets * o), *B = A + sets * o;
  for (Index i = 0; i < sets * o; i++) {
    A[i] = layer.scale.data[i % o] * layer.inverse.data[i];
    B[i] = layer.shift.data[i % o] - layer.mean.data[i] * A[i];
  }
  T* y = layer.y.get(g.n * g.out_size());
  uint8_t* which = layer.which.get(tape.net.pool ? g.places() * o : 1);
  clear_border(g, y);
  each_place(g, tape.net.pool, sets, [&](auto pooled, Index set, Index place, Index bordered, Index pixel) {
    const T *z = layer.z.data + pixel * o, *below = z + g.ow * o;
    for (Index j = 0; j < o; j += LANES<T>) {
      const Vector<T> a = lanes(A + set * o + j), b = lanes(B + set * o + j);
      Vector<T> value = lanes(z + j) * a + b;
      if constexpr (pooled) {
        const Vector<T> v1 = lanes(z + o + j) * a + b, v2 = lanes(below + j) * a + b, v3 = lanes(below + o + j) * a + b;
        const Mask<T> right = v1 > value, lower_right = v3 > v2;
        const Vector<T> top = right ? v1 : value, low = lower_right ? v3 : v2;
        const Mask<T> lower = low > top;
        value = lower ? low : top;
        *reinterpret_cast<Bytes<T>*>(which + place * o + j) = __builtin_convertvector(lower ? 2 + (lower_right & 1) : right & 1, Bytes<T>);
      }
      lanes(y + bordered * o + j) = value < 0 ? Vector<T>{} : value;  // what is not a number stays
    }
  });
}

template <class T>
Tape<T>* forward(const Network& net, Index n, const T* x, const T* const* params, const T* const* given, T* features, T* const* seen) {
  Tape<T>* tape = pool<Tape<T>>().take();
  tape->net = net, tape->n = n;
  if (tape->layers.size() != size_t(net.depth)) tape->layers = std::vector<Layer<T>>(net.depth);
  for (int l = 0; l < net.depth; l++) {
    Layer<T>& layer = tape->layers[l];
    lay_out(layer, geometry<T>(net, n, l), l > 0);
    const Geometry& g = layer.g;
    if (!l) turn_pictures(g, x, tape->x.get(n * g.in_size()));
    const Index o = g.o, sets = tape->sets();
    const T *weight = params[4 * l], *bias = params[4 * l + 1], *scale = params[4 * l + 2], *shift = params[4 * l + 3];
    turn_weight(g, net.filters, l ? net.filters : net.channels, weight, layer.weight.get(g.taps * o));
    T *s = cleared(layer.scale, o), *b = cleared(layer.shift, o), *z = layer.z.get(g.pixels() * o);
    for (Index j = 0; j < net.filters; j++) s[j] = scale ? scale[j] : T(1), b[j] = shift ? shift[j] : T(0);
    const Factors<T> terms[] = {{l ? tape->layers[l - 1].y.data : tape->x.data, layer.weight.data}};
    each_chunk(g, [&](Index first, Index images) { convolve(layer, terms, 1, first, images, z); });
    if (bias && net.norm != BATCH) add_bias(g, net.filters, bias, z);
    T *mean = layer.mean.get(sets * o), *inverse = layer.inverse.get(sets * o);
    if (net.norm == BATCH || net.norm == GROUP) statistics(*tape, layer);
    if (net.norm == NONE || net.norm == GIVEN) std::fill(mean, mean + o, T(0)), std::fill(inverse, inverse + o, T(1));
    for (Index j = 0; j < net.filters; j++) {
      if (net.norm == GIVEN) mean[j] = given[2 * l][j], inverse[j] = 1 / std::sqrt(given[2 * l + 1][j] + T(net.eps));
      if (net.norm == BATCH && seen) seen[2 * l][j] = mean[j], seen[2 * l + 1][j] = 1 / (inverse[j] * inverse[j]) - T(net.eps);
    }
    activate(*tape, layer);
  }
  turn_features(tape->layers.back().g, net.filters, tape->layers.back().y.data, features, true);
  return tape;
}

// ---- backward ----

// Coefficients of the gradient in z: A g + B z + C.
template <class T> void slopes(const Tape<T>& tape, const Layer<T>& layer, const T* m1, const T* m2, T* A, T* B, T* C) {
  const Index o = layer.g.o;
  for (Index i = 0; i < tape.sets() * o; i++) {
    const T inverse = layer.inverse.data[i];
    A[i] = layer.scale.data[i % o] * inverse;
    B[i] = -inverse * m2[i] * inverse;
    C[i] = -inverse * m1[i] - B[i] * layer.mean.data[i];
  }
}

template <class T>
Cotangents<T>* backward(Tape<T>& tape, const T* features, const T* const* of_seen, T* to_x, T* const* out, T* const* to_given, bool keep) {
  const Network& net = tape.net;
  Scratch<T>& s = scratch<T>();
  Cotangents<T>* state = pool<Cotangents<T>>().take();
  for (auto* each : {&state->at_place, &state->sum, &state->dot, &state->m1, &state->m2})
    if (each->size() != size_t(net.depth)) *each = std::vector<Buffer<T>>(net.depth);
  const Geometry& last = tape.layers.back().g;
  T* arriving = cleared(s.one, last.places() * last.o);
  turn_features(last, net.filters, features, arriving, false);
  for (int l = net.depth - 1; l >= 0; l--) {
    Layer<T>& layer = tape.layers[l];
    const Geometry& g = layer.g;
    const Index o = g.o, sets = tape.sets();
    T *sum = state->sum[l].get(sets * o), *dot = state->dot[l].get(sets * o);
    T* masked = keep ? state->at_place[l].get(g.places() * o) : arriving;
    Sums<T> sums(sum, dot, sets, o, g.places() / sets);
    each_place(g, net.pool, sets, [&](auto pooled, Index set, Index place, Index bordered, Index pixel) {
      const Taken<T, pooled> z(layer, layer.z.data, place, pixel);
      for (Index j = 0; j < o; j += LANES<T>) {
        const Vector<T> value = lanes(layer.y.data + bordered * o + j) > 0 ? lanes(arriving + place * o + j) : Vector<T>{};
        lanes(masked + place * o + j) = value;
        lanes(sums.block_sum + j) += value, lanes(sums.block_dot + j) += value * (z[j] - lanes(layer.mean.data + set * o + j));
      }
      sums.next(set, place);
    });
    for (Index i = 0; i < sets * o; i++) dot[i] *= layer.inverse.data[i];
    T *m1 = state->m1[l].get(sets * o), *m2 = state->m2[l].get(sets * o);
    for (Index i = 0; i < sets * o; i++) {
      const bool own = net.norm == BATCH || net.norm == GROUP;
      m1[i] = own ? layer.scale.data[i % o] * sum[i] : T(0), m2[i] = own ? layer.scale.data[i % o] * dot[i] : T(0);
    }
    means(tape, g, m1), means(tape, g, m2);
    T *A = s.wide.get(3 * sets * o), *B = A + sets * o, *C = B + sets * o;
    slopes(tape, layer, m1, m2, A, B, C);
    const T count = T(g.pixels());
    if (of_seen && net.norm == BATCH)
      for (Index j = 0; j < net.filters; j++) {
        const T spread = of_seen[2 * l + 1] ? 2 * of_seen[2 * l + 1][j] / count : T(0);
        B[j] += spread, C[j] += (of_seen[2 * l] ? of_seen[2 * l][j] / count : T(0)) - spread * layer.mean.data[j];
      }
    T *weight = out[4 * l], *bias = out[4 * l + 1], *scale = out[4 * l + 2], *shift = out[4 * l + 3];
    for (Index j = 0; j < net.filters; j++) {
      T total = 0, along = 0;
      for (Index set = 0; set < sets; set++) total += sum[set * o + j], along += dot[set * o + j];
      if (shift) shift[j] = total;
      if (scale) scale[j] = along;
      if (to_given && to_given[2 * l]) to_given[2 * l][j] = -A[j] * total;
      if (to_given && to_given[2 * l + 1]) to_given[2 * l + 1][j] = -layer.scale.data[j] * along * layer.inverse.data[j] * layer.inverse.data[j] / 2;
      if (bias) bias[j] = 0;
    }
    const Index columns = g.c, width = filled_up<T>(columns);
    const bool on = l || to_x;
    const std::vector<Phase> phases = !l && to_x ? phases_of(g, columns) : std::vector<Phase>();
    const std::vector<Phase>& ways = l ? layer.phases : phases;
    T* next = on ? (arriving == s.one.data ? s.other : s.one).get(g.n * g.h * g.w * columns) : nullptr;
    if (on) transpose_weight(g, ways, layer.weight.data, width, layer.back.get(g.k * g.k * g.o * width));
    T *dz = cleared(s.rows, g.images * g.gradient_size()), *gradient = cleared(s.gradient, g.taps * o);
    const T* input = l ? tape.layers[l - 1].y.data : tape.x.data;
    each_chunk(g, [&](Index first, Index images) {
      dense(tape, layer, {layer.z.data, B, nullptr, nullptr, C, masked, A, nullptr, nullptr}, first, images, dz);
      if (bias && net.norm != BATCH) to_bias(layer, net.filters, images, dz, bias);
      const Factors<T> in_weight[] = {{input, dz}}, in_input[] = {{dz, layer.back.data}};
      if (weight) convolve_weight(layer, in_weight, 1, first, images, gradient);
      if (on) convolve_back(g, ways, in_input, 1, first, images, width, columns, next);
    });
    if (!l && to_x)
      for (Index i = 0; i < g.n * g.h * g.w; i++)
        for (Index c = 0; c < g.c; c++) to_x[(i / (g.h * g.w) * g.c + c) * g.h * g.w + i % (g.h * g.w)] = next[i * g.c + c];
    if (weight) turn_weight_back(g, net.filters, l ? net.filters : net.channels, gradient, weight);
    arriving = next;
  }
  if (keep) return state;
  pool<Cotangents<T>>().give(state);
  return nullptr;
}

// ---- along a direction in the parameters ----

template <class T> Tangents<T>* tangent(const Tape<T>& tape, const T* const* direction, T* features) {
  const Network& net = tape.net;
  Scratch<T>& s = scratch<T>();
  Tangents<T>* state = pool<Tangents<T>>().take();
  for (auto* each : {&state->weight, &state->scale, &state->shift, &state->z, &state->y, &state->mean, &state->dot})
    if (each->size() != size_t(net.depth)) *each = std::vector<Buffer<T>>(net.depth);
  for (int l = 0; l < net.depth; l++) {
    const Layer<T>& layer = tape.layers[l];
    const Geometry& g = layer.g;
    const Index o = g.o, sets = tape.sets();
    const T *weight = direction[4 * l], *bias = direction[4 * l + 1], *scale = direction[4 * l + 2], *shift = direction[4 * l + 3];
    T *vw = state->weight[l].get(g.taps * o), *vs = cleared(state->scale[l], o), *vb = cleared(state->shift[l], o);
    if (weight) turn_weight(g, net.filters, l ? net.filters : net.channels, weight, vw);
    else cleared(state->weight[l], g.taps * o);
    for (Index j = 0; j < net.filters; j++) vs[j] = scale ? scale[j] : T(0), vb[j] = shift ? shift[j] : T(0);
    T *z = state->z[l].get(g.pixels() * o), *y = state->y[l].get(g.n * g.out_size());
    clear_border(g, y);
    const Factors<T> terms[] = {{l ? tape.layers[l - 1].y.data : tape.x.data, vw}, {l ? state->y[l - 1].data : nullptr, layer.weight.data}};
    each_chunk(g, [&](Index first, Index images) { convolve(layer, terms, l ? 2 : 1, first, images, z); });
    if (bias && net.norm != BATCH) add_bias(g, net.filters, bias, z);
    T *mean = state->mean[l].get(sets * o), *dot = state->dot[l].get(sets * o);
    const Index per = g.pixels() / sets;
    Sums<T> sums(mean, dot, sets, o, per);
    for (Index pixel = 0; pixel < g.pixels() && (net.norm == BATCH || net.norm == GROUP); pixel++) {
      for (Index j = 0; j < o; j += LANES<T>) {
        const Vector<T> moved = lanes(z + pixel * o + j);
        lanes(sums.block_sum + j) += moved;
        lanes(sums.block_dot + j) += moved * (lanes(layer.z.data + pixel * o + j) - lanes(layer.mean.data + pixel / per * o + j));
      }
      sums.next(pixel / per, pixel);
    }
    for (Index i = 0; i < sets * o; i++) dot[i] *= layer.inverse.data[i];
    means(tape, g, mean), means(tape, g, dot);
    T *A = s.wide.get(3 * sets * o), *B = A + sets * o, *C = B + sets * o;
    for (Index i = 0; i < sets * o; i++) {
      A[i] = layer.scale.data[i % o] * layer.inverse.data[i];
      B[i] = (vs[i % o] - A[i] * dot[i]) * layer.inverse.data[i];
      C[i] = vb[i % o] - A[i] * mean[i] - B[i] * layer.mean.data[i];
    }
    each_place(g, net.pool, sets, [&](auto pooled, Index set, Index place, Index bordered, Index pixel) {
      const Taken<T, pooled> q(layer, layer.z.data, place, pixel), t(layer, z, place, pixel);
      for (Index j = 0; j < o; j += LANES<T>) {
        const Vector<T> value = t[j] * lanes(A + set * o + j) + q[j] * lanes(B + set * o + j) + lanes(C + set * o + j);
        lanes(y + bordered * o + j) = lanes(layer.y.data + bordered * o + j) > 0 ? value : Vector<T>{};
      }
    });
  }
  turn_features(tape.layers.back().g, net.filters, state->y.back().data, features, true);
  return state;
}

// The derivative of a backward pass along a direction, plus the gradient of another cotangent of the features.
template <class T>
void second(const Tape<T>& tape, const Cotangents<T>& first, const Tangents<T>& along, const T* features, T* const* out) {
  const Network& net = tape.net;
  Scratch<T>& s = scratch<T>();
  const Geometry& last = tape.layers.back().g;
  T* arriving = cleared(s.one, last.places() * last.o);
  if (features) turn_features(last, net.filters, features, arriving, false);
  for (int l = net.depth - 1; l >= 0; l--) {
    const Layer<T>& layer = tape.layers[l];
    const Geometry& g = layer.g;
    const Index o = g.o, sets = tape.sets();
    const T *vw = along.weight[l].data, *vs = along.scale[l].data, *tz = along.z[l].data, *a = along.mean[l].data, *b = along.dot[l].data;
    const T *m1 = first.m1[l].data, *m2 = first.m2[l].data, *g1 = first.at_place[l].data;
    T* coefficients = s.wide.get(14 * sets * o);
    auto coefficient = [&](int i) { return coefficients + i * sets * o; };
    T *s1 = coefficient(0), *s2 = coefficient(1), *k1 = coefficient(2), *k0 = coefficient(3), *n1 = coefficient(4), *n2 = coefficient(5), *e1 = coefficient(6),
      *e2 = coefficient(7), *e3 = coefficient(8), *e4 = coefficient(9), *e5 = coefficient(10), *A = coefficient(11), *B = coefficient(12), *C = coefficient(13);
    for (Index i = 0; i < sets * o; i++) {  // the normalised value moves by  inverse·tz + k1·z + k0
      const T inverse = layer.inverse.data[i];
      k1[i] = -inverse * b[i] * inverse, k0[i] = -inverse * a[i] - k1[i] * layer.mean.data[i];
    }
    Sums<T> sums(s1, s2, sets, o, g.places() / sets);
    each_place(g, net.pool, sets, [&](auto pooled, Index set, Index place, Index bordered, Index pixel) {
      const Taken<T, pooled> q(layer, layer.z.data, place, pixel), t(layer, tz, place, pixel);
      for (Index j = 0; j < o; j += LANES<T>) {
        const Vector<T> inverse = lanes(layer.inverse.data + set * o + j), at = q[j];
        const Vector<T> value = lanes(layer.y.data + bordered * o + j) > 0 ? lanes(arriving + place * o + j) : Vector<T>{};
        const Vector<T> turn = inverse * t[j] + lanes(k1 + set * o + j) * at + lanes(k0 + set * o + j);
        lanes(arriving + place * o + j) = value;
        lanes(sums.block_sum + j) += value;
        lanes(sums.block_dot + j) += value * (at - lanes(layer.mean.data + set * o + j)) * inverse + lanes(g1 + place * o + j) * turn;
      }
      sums.next(set, place);
    });
    const bool own = net.norm == BATCH || net.norm == GROUP;
    for (Index i = 0; i < sets * o; i++) {
      n1[i] = own ? vs[i % o] * first.sum[l].data[i] + layer.scale.data[i % o] * s1[i] : T(0);
      n2[i] = own ? vs[i % o] * first.dot[l].data[i] + layer.scale.data[i % o] * s2[i] : T(0);
    }
    means(tape, g, n1), means(tape, g, n2);
    for (Index i = 0; i < sets * o; i++) {
      const T inverse = layer.inverse.data[i], square = inverse * inverse, scale = layer.scale.data[i % o];
      const T kz = 2 * square * b[i] * m2[i] - inverse * n2[i];
      e1[i] = inverse * vs[i % o] - square * b[i] * scale, e2[i] = inverse * scale, e3[i] = -square * m2[i], e4[i] = kz * inverse;
      e5[i] = square * b[i] * m1[i] - inverse * n1[i] + square * m2[i] * a[i] - e4[i] * layer.mean.data[i];
    }
    slopes(tape, layer, m1, m2, A, B, C);
    T *weight = out[4 * l], *bias = out[4 * l + 1], *scale = out[4 * l + 2], *shift = out[4 * l + 3];
    for (Index j = 0; j < net.filters; j++) {
      T total = 0, turn = 0;
      for (Index set = 0; set < sets; set++) total += s1[set * o + j], turn += s2[set * o + j];
      if (shift) shift[j] = total;
      if (scale) scale[j] = turn;
      if (bias) bias[j] = 0;
    }
    T* next = l ? (arriving == s.one.data ? s.other : s.one).get(g.n * g.h * g.w * g.c) : nullptr;
    T* back = s.back.get(g.k * g.k * g.o * g.c);
    if (l) transpose_weight(g, layer.phases, vw, g.c, back);
    T *tdz = cleared(s.rows, g.images * g.gradient_size()), *dz = cleared(s.rows2, g.images * g.gradient_size()), *gradient = cleared(s.gradient, g.taps * o);
    const T *input = l ? tape.layers[l - 1].y.data : tape.x.data, *moving = l ? along.y[l - 1].data : nullptr;
    each_chunk(g, [&](Index from, Index images) {
      dense(tape, layer, {layer.z.data, e4, tz, e3, e5, g1, e1, arriving, e2}, from, images, tdz);
      if (l) dense(tape, layer, {layer.z.data, B, nullptr, nullptr, C, g1, A, nullptr, nullptr}, from, images, dz);
      if (bias && net.norm != BATCH) to_bias(layer, net.filters, images, tdz, bias);
      const Factors<T> in_weight[] = {{input, tdz}, {moving, dz}}, in_input[] = {{tdz, layer.back.data}, {dz, back}};
      convolve_weight(layer, in_weight, l ? 2 : 1, from, images, gradient);
      if (l) convolve_back(g, layer.phases, in_input, 2, from, images, g.c, g.c, next);
    });
    if (weight) turn_weight_back(g, net.filters, l ? net.filters : net.channels, gradient, weight);
    arriving = next;
  }
}

// ---- descent: inner steps from the first to the last, and back along their chain ----

struct Steps {  // as innerloop/nets/ops/descent.py declares it
  int32_t ways, steps, through, labels, rates;  // whether targets are labels; what kind of rates
  double scale, lr;                             // of the loss, whose gradient in the outputs is scale * (prediction - target)
};
enum Rates { FIXED, OF_STEP, OF_WEIGHT };

template <class T> struct Linear {  // a last layer on some features, and the loss of its outputs
  Index n, inputs, ways;
  Buffer<T> features, predicted, delta;
};
// C (rows, columns) = beta C + sum over k of  a(row, k) b(k, column): small products with any strides.
template <class T> void small_product(Index rows, Index columns, Index inner, const T* a, Index ar, Index ak, const T* b, Index bk, Index bc, T beta, T* c) {
  for (Index r = 0; r < rows; r++)
    for (Index j = 0; j < columns; j++) {
      Vector<T> sums{};
      T total = beta != 0 ? beta * c[r * columns + j] : T(0);
      Index k = 0;
      if (ak == 1 && bk == 1) {
        for (; k + LANES<T> <= inner; k += LANES<T>) sums += lanes(a + r * ar + k) * lanes(b + j * bc + k);
        for (Index i = 0; i < LANES<T>; i++) total += sums[i];
      }
      for (; k < inner; k++) total += a[r * ar + k * ak] * b[k * bk + j * bc];
      c[r * columns + j] = total;
    }
}
// C (rows, columns) = beta C + a' b, for b with long rows.
template <class T> void weigh_rows(Index rows, Index columns, Index inner, const T* a, Index ar, Index ak, const T* b, T beta, T* c) {
  for (Index r = 0; r < rows; r++) {
    T* __restrict__ to = c + r * columns;
    if (beta == 0) std::fill(to, to + columns, T(0));
    for (Index k = 0; k < inner; k++) {
      const T weight = a[r * ar + k * ak];
      const T* __restrict__ from = b + k * columns;
      for (Index j = 0; j < columns; j++) to[j] += weight * from[j];
    }
  }
}

template <class T> struct Descent {
  Network net;
  Steps how;
  Index n, inputs, total = 0;
  std::vector<Index> sizes, starts;  // of parameters: four of every block, weight and bias of the last layer; -1: there is none
  std::vector<uint8_t> moves;
  std::vector<Tape<T>*> tapes;
  std::vector<Cotangents<T>*> cotangents;
  std::vector<std::unique_ptr<Linear<T>>> heads;
  std::vector<std::unique_ptr<Buffer<T>>> params, grads;  // by step
  std::vector<Buffer<T>> rates;
  std::vector<Index> rate_sizes;
  Index count() const { return Index(sizes.size()); }
  std::vector<T*> pointers(T* flat) const {
    std::vector<T*> list;
    for (Index i = 0; i < count(); i++) list.push_back(sizes[i] ? flat + starts[i] : nullptr);
    return list;
  }
  // to = from times the rate of parameter i at step t
  void by_rate(Index i, Index t, const T* from, T* to) const {
    const bool single = how.rates != OF_WEIGHT || !moves[i];
    const T rate = !moves[i] ? T(0) : how.rates == FIXED ? T(how.lr) : single ? rates[i].data[std::min(t, rate_sizes[i] - 1)] : T(0);
    const T* each = single ? nullptr : rates[i].data;
    for (Index j = 0; j < sizes[i]; j++) to[j] = from[j] * (each ? each[j] : rate);
  }
  void give_step(Index t) {
    if (tapes[t]) pool<Tape<T>>().give(tapes[t]);
    if (cotangents[t]) pool<Cotangents<T>>().give(cotangents[t]);
    tapes[t] = nullptr, cotangents[t] = nullptr;
  }
  ~Descent() {
    for (Index t = 0; t < Index(tapes.size()); t++) give_step(t);
  }
};

// The gradient of the loss at parameters `at`, into `to`; keeps what the derivative along a direction needs.
template <class T>
void inner_gradient(Descent<T>& d, Index t, const T* x, const T* const* given, const int64_t* labels, const T* targets, T* at, T* to, bool keep) {
  const Index n = d.n, D = d.inputs, ways = d.how.ways, last = d.count() - 2;
  const std::vector<T*> params = d.pointers(at), grads = d.pointers(to);
  if (!d.heads[t]) d.heads[t].reset(new Linear<T>());
  Linear<T>& head = *d.heads[t];
  T *features = head.features.get(n * D), *p = head.predicted.get(n * ways), *delta = head.delta.get(n * ways);
  d.tapes[t] = forward<T>(d.net, n, x, params.data(), given, features, nullptr);
  small_product<T>(n, ways, D, features, D, 1, params[last], 1, D, 0, p);
  for (Index i = 0; i < n; i++) {
    T* row = p + i * ways;
    for (Index j = 0; j < ways; j++) row[j] += params[last + 1][j];
    if (d.how.labels) {
      const T top = *std::max_element(row, row + ways);
      T sum = 0;
      for (Index j = 0; j < ways; j++) sum += row[j] = std::exp(row[j] - top);
      for (Index j = 0; j < ways; j++) row[j] /= sum;
    }
    for (Index j = 0; j < ways; j++) delta[i * ways + j] = T(d.how.scale) * (row[j] - (d.how.labels ? T(labels[i] == j) : targets[i * ways + j]));
  }
  weigh_rows<T>(ways, D, n, delta, 1, ways, features, 0, grads[last]);
  for (Index j = 0; j < ways; j++) {
    grads[last + 1][j] = 0;
    for (Index i = 0; i < n; i++) grads[last + 1][j] += delta[i * ways + j];
  }
  T* arriving = scratch<T>().gradient_in.get(n * D);
  weigh_rows<T>(n, D, ways, delta, ways, 1, params[last], 0, arriving);
  d.cotangents[t] = backward<T>(*d.tapes[t], arriving, nullptr, nullptr, grads.data(), nullptr, keep);
  if (!keep) d.give_step(t);
}

// out = the Hessian of the loss of step t times v.
template <class T> void hessian_times(Descent<T>& d, Index t, T* v, T* out) {
  const Index n = d.n, D = d.inputs, ways = d.how.ways, last = d.count() - 2;
  const std::vector<T*> params = d.pointers(d.params[t]->data), direction = d.pointers(v), to = d.pointers(out);
  const Linear<T>& head = *d.heads[t];
  Scratch<T>& s = scratch<T>();
  T *moving = s.features_in.get(n * D), *turned = s.outputs_in.get(n * ways), *arriving = s.gradient_in.get(n * D);
  const T *p = head.predicted.data, *delta = head.delta.data;
  Tangents<T>* along = tangent<T>(*d.tapes[t], direction.data(), moving);
  small_product<T>(n, ways, D, moving, D, 1, params[last], 1, D, 0, turned);
  small_product<T>(n, ways, D, head.features.data, D, 1, direction[last], 1, D, 1, turned);
  for (Index i = 0; i < n; i++) {
    T *row = turned + i * ways, mean = 0;
    for (Index j = 0; j < ways; j++) row[j] += direction[last + 1][j], mean += p[i * ways + j] * row[j];
    for (Index j = 0; j < ways; j++) row[j] = T(d.how.scale) * (d.how.labels ? p[i * ways + j] * (row[j] - mean) : row[j]);
  }
  weigh_rows<T>(ways, D, n, turned, 1, ways, head.features.data, 0, to[last]);
  weigh_rows<T>(ways, D, n, delta, 1, ways, moving, 1, to[last]);
  for (Index j = 0; j < ways; j++) {
    to[last + 1][j] = 0;
    for (Index i = 0; i < n; i++) to[last + 1][j] += turned[i * ways + j];
  }
  weigh_rows<T>(n, D, ways, turned, ways, 1, params[last], 0, arriving);
  weigh_rows<T>(n, D, ways, delta, ways, 1, direction[last], 1, arriving);
  second<T>(*d.tapes[t], *d.cotangents[t], *along, arriving, to.data());
  pool<Tangents<T>>().give(along);
}

template <class T>
Descent<T>* descend(const Network& net, const Steps& how, Index n, const T* x, const int64_t* labels, const T* targets, const T* const* given,
                    const T* const* params, const uint8_t* moves, const T* const* rates, const int64_t* rate_sizes, T* const* out, bool keep) {
  Descent<T>* made = new Descent<T>();
  Descent<T>& d = *made;
  d.net = net, d.how = how, d.n = n, d.rates = std::vector<Buffer<T>>(4 * net.depth + 2);
  const Geometry last = geometry<T>(net, n, net.depth - 1);
  d.inputs = net.filters * last.ph * last.pw;
  for (Index i = 0; i < 4 * net.depth + 2; i++) {
    const Index kk = Index(net.kernel) * net.kernel * (i ? net.filters : net.channels) * net.filters;
    const Index full = i >= 4 * net.depth ? (i == 4 * net.depth ? how.ways * d.inputs : how.ways) : i % 4 ? net.filters : kk;
    d.sizes.push_back(params[i] ? full : 0), d.starts.push_back(d.total), d.moves.push_back(moves[i]);
    d.total += d.sizes.back();
    d.rate_sizes.push_back(how.rates == FIXED ? 0 : rate_sizes[i]);
    if (rates && rates[i]) std::copy(rates[i], rates[i] + rate_sizes[i], d.rates[i].get(rate_sizes[i]));
  }
  d.tapes.resize(how.steps), d.cotangents.resize(how.steps), d.heads.resize(how.steps);
  T* now = nullptr;
  auto room = [&](std::vector<std::unique_ptr<Buffer<T>>>& list) { list.emplace_back(new Buffer<T>()); return list.back()->get(d.total); };
  now = room(d.params);
  for (Index i = 0; i < d.count(); i++) std::copy(params[i], params[i] + d.sizes[i], now + d.starts[i]);
  for (Index t = 0; t < how.steps; t++) {
    T *to = how.rates == FIXED ? scratch<T>().step.get(d.total) : room(d.grads), *next = room(d.params);
    inner_gradient<T>(d, t, x, given, labels, targets, now, to, keep && t >= how.steps - how.through);
    for (Index i = 0; i < d.count(); i++) d.by_rate(i, t, to + d.starts[i], next + d.starts[i]);
    for (Index j = 0; j < d.total; j++) next[j] = now[j] - next[j];
    now = next;
  }
  for (Index i = 0; i < d.count(); i++)
    if (d.sizes[i]) std::copy(now + d.starts[i], now + d.starts[i] + d.sizes[i], out[i]);
  if (keep) return made;
  delete made;
  return nullptr;
}

// From the gradient in the last parameters to those in the first, and in the rates.
template <class T> void ascend(Descent<T>& d, const T* const* arriving, T* const* out, T* const* to_rates) {
  Scratch<T>& s = scratch<T>();
  T *v = cleared(s.chain, d.total), *along = s.direction.get(d.total), *turned = s.step.get(d.total);
  for (Index i = 0; i < d.count(); i++) {
    if (arriving[i]) std::copy(arriving[i], arriving[i] + d.sizes[i], v + d.starts[i]);
    if (to_rates && to_rates[i]) std::fill(to_rates[i], to_rates[i] + d.rate_sizes[i], T(0));
  }
  for (Index t = d.how.steps - 1; t >= 0; t--) {
    for (Index i = 0; i < d.count(); i++) {
      const Index start = d.starts[i];
      d.by_rate(i, t, v + start, along + start);
      if (to_rates && to_rates[i])
        for (Index j = 0; j < d.sizes[i]; j++) to_rates[i][d.how.rates == OF_WEIGHT ? j : std::min(t, d.rate_sizes[i] - 1)] -= v[start + j] * d.grads[t]->data[start + j];
    }
    if (t < d.how.steps - d.how.through) continue;
    hessian_times<T>(d, t, along, turned);
    for (Index j = 0; j < d.total; j++) v[j] -= turned[j];
  }
  for (Index i = 0; i < d.count(); i++)
    if (out[i]) std::copy(v + d.starts[i], v + d.starts[i] + d.sizes[i], out[i]);
}

}  // namespace

#define EXPORT(T, NAME)                                                                                                    \
  extern "C" void* forward_##NAME(const Network* net, int64_t n, const T* x, const T* const* params,                       \
                                  const T* const* given, T* features, T* const* seen) {                                   \
    return forward<T>(*net, n, x, params, given, features, seen);                                                    \
  }                                                                                                                        \
  extern "C" void* backward_##NAME(void* tape, const T* features, const T* const* of_seen, T* to_x, T* const* out,         \
                                   T* const* to_given, int32_t keep) {                                                     \
    return backward<T>(*static_cast<Tape<T>*>(tape), features, of_seen, to_x, out, to_given, keep);                        \
  }                                                                                                                        \
  extern "C" void* tangent_##NAME(void* tape, const T* const* direction, T* features) {                                    \
    return tangent<T>(*static_cast<Tape<T>*>(tape), direction, features);                                                  \
  }                                                                                                                        \
  extern "C" void second_##NAME(void* tape, void* first, void* along, const T* features, T* const* out) {                  \
    second<T>(*static_cast<Tape<T>*>(tape), *static_cast<Cotangents<T>*>(first), *static_cast<Tangents<T>*>(along),        \
              features, out);                                                                                              \
  }                                                                                                                        \
  extern "C" void* descend_##NAME(const Network* net, const Steps* how, int64_t n, const T* x, const int64_t* labels,      \
                                  const T* targets, const T* const* given, const T* const* params, const uint8_t* moves,   \
                                  const T* const* rates, const int64_t* rate_sizes, T* const* out, int32_t keep) {         \
    return descend<T>(*net, *how, n, x, labels, targets, given, params, moves, rates, rate_sizes, out, keep);              \
  }                                                                                                                        \
  extern "C" void ascend_##NAME(void* state, const T* const* arriving, T* const* out, T* const* to_rates) {                \
    ascend<T>(*static_cast<Descent<T>*>(state), arriving, out, to_rates);                                                  \
  }                                                                                                                        \
  extern "C" void give_descent_##NAME(void* state) { delete static_cast<Descent<T>*>(state); }                             \
  extern "C" void give_tape_##NAME(void* state) { pool<Tape<T>>().give(static_cast<Tape<T>*>(state)); }                    \
  extern "C" void give_cotangents_##NAME(void* state) { pool<Cotangents<T>>().give(static_cast<Cotangents<T>*>(state)); }  \
  extern "C" void give_tangents_##NAME(void* state) { pool<Tangents<T>>().give(static_cast<Tangents<T>*>(state)); }
EXPORT(float, float32)
EXPORT(double, float64)
