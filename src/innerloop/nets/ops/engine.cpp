// The features of a convolutional network, their gradient, and the gradient of that gradient, written out.
//
// A network is so many blocks of convolution, normalisation, ReLU and, perhaps, 2x2 max pooling. With f the features,
// J their Jacobian in the parameters, g a cotangent of f and v a direction in the parameters:
//
//   forward   f, and a tape           backward   J'g            tangent   Jv           second   d(J'g) along v  +  J'c
//
// Maps are stored channels last. Convolutions are products of patch matrices by the BLAS that torch brings; patches are
// laid out in strips that fit the cache, and kept only where they are small. Per-pixel work is fused into one pass each.
// One thread does a call from beginning to end, so nothing depends on how many there are. Only plain C is exported.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

namespace {

using Index = std::ptrdiff_t;
enum Norm { NONE, BATCH, GIVEN, GROUP };

struct Network {  // as innerloop/nets/ops/engine.py declares it
  int32_t depth, channels, height, width, filters, kernel, stride, pool, norm, groups;
  double eps;
};

// ---- products: row-major C (m, n) = beta C + A B, by Fortran's gemm ----

using Sgemm = void (*)(const char*, const char*, const int*, const int*, const int*, const float*, const float*, const int*,
                       const float*, const int*, const float*, float*, const int*);
using Dgemm = void (*)(const char*, const char*, const int*, const int*, const int*, const double*, const double*,
                       const int*, const double*, const int*, const double*, double*, const int*);
Sgemm sgemm = nullptr;
Dgemm dgemm = nullptr;
void gemm(const char* a, const char* b, int m, int n, int k, const float* A, int lda, const float* B, int ldb, float beta,
          float* C, int ldc) {
  const float one = 1;
  sgemm(a, b, &m, &n, &k, &one, A, &lda, B, &ldb, &beta, C, &ldc);
}
void gemm(const char* a, const char* b, int m, int n, int k, const double* A, int lda, const double* B, int ldb,
          double beta, double* C, int ldc) {
  const double one = 1;
  dgemm(a, b, &m, &n, &k, &one, A, &lda, B, &ldb, &beta, C, &ldc);
}
template <class T> void times_transposed(Index m, Index n, Index k, const T* A, const T* B, T* C, T beta) {
  gemm("T", "N", n, m, k, B, k, A, k, beta, C, n);  // A (m, k), B (n, k)
}
template <class T> void times(Index m, Index n, Index k, const T* A, const T* B, T* C, T beta) {
  gemm("N", "N", n, m, k, B, n, A, k, beta, C, n);  // A (m, k), B (k, n)
}
template <class T> void transposed_times(Index m, Index n, Index k, const T* A, const T* B, T* C, T beta) {
  gemm("N", "T", n, m, k, B, n, A, m, beta, C, n);  // A (k, m), B (k, n)
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

struct Geometry {  // of one block
  Index n, c, h, w, o, k, stride, pad, oh, ow, taps, ph, pw;
  Index pixels() const { return n * oh * ow; }
  Index places() const { return n * ph * pw; }  // after pooling
  Index lines() const { return n * oh; }
};

Geometry geometry(const Network& net, Index n, int layer) {
  Geometry g{};
  Index h = net.height, w = net.width;
  for (int i = 0; i <= layer; i++) {
    const Index c = i ? net.filters : net.channels, k = net.kernel, pad = k / 2;
    g = {n, c, h, w, net.filters, k, net.stride, pad, (h + 2 * pad - k) / net.stride + 1, (w + 2 * pad - k) / net.stride + 1, k * k * c, 0, 0};
    g.ph = net.pool ? g.oh / 2 : g.oh;
    g.pw = net.pool ? g.ow / 2 : g.ow;
    h = g.ph, w = g.pw;
  }
  return g;
}

constexpr Index KEPT = 1 << 20;   // entries of a patch matrix that is kept from one pass to the next
constexpr Index STRIP = 1 << 17;  // entries of a strip of patches: fits the second-level cache
constexpr int BLOCK = 64;         // rows that are summed by themselves, for accuracy

// Lines [a, b) of the patch matrix of x, a row per output pixel, (kernel, kernel, channel) along it.
template <class T> void lay_out(const Geometry& g, const T* x, Index a, Index b, T* __restrict__ out) {
  const Index row = g.k * g.c;
  for (Index u = a; u < b; u++) {
    const Index n = u / g.oh, y = u % g.oh;
    for (Index q = 0; q < g.ow; q++) {
      const Index ix = q * g.stride - g.pad, lo = std::max<Index>(0, -ix) * g.c, hi = std::max(lo, std::min(g.k, g.w - ix) * g.c);
      for (Index ky = 0; ky < g.k; ky++, out += row) {
        const Index iy = y * g.stride - g.pad + ky;
        if (iy < 0 || iy >= g.h) {
          std::memset(out, 0, row * sizeof(T));
          continue;
        }
        const T* __restrict__ in = x + ((n * g.h + iy) * g.w + ix) * g.c;
        for (Index i = 0; i < lo; i++) out[i] = 0;
        for (Index i = lo; i < hi; i++) out[i] = in[i];
        for (Index i = hi; i < row; i++) out[i] = 0;
      }
    }
  }
}

// The transposed map: adds lines [a, b) of a patch matrix to a picture.
template <class T> void add_back(const Geometry& g, const T* in, Index a, Index b, T* x) {
  const Index row = g.k * g.c;
  for (Index u = a; u < b; u++) {
    const Index n = u / g.oh, y = u % g.oh;
    for (Index q = 0; q < g.ow; q++) {
      const Index ix = q * g.stride - g.pad, lo = std::max<Index>(0, -ix) * g.c, hi = std::max(lo, std::min(g.k, g.w - ix) * g.c);
      for (Index ky = 0; ky < g.k; ky++, in += row) {
        const Index iy = y * g.stride - g.pad + ky;
        if (iy < 0 || iy >= g.h) continue;
        T* __restrict__ to = x + ((n * g.h + iy) * g.w + ix) * g.c;
        const T* __restrict__ from = in;
        for (Index i = lo; i < hi; i++) to[i] += from[i];
      }
    }
  }
}

// ---- what a pass keeps ----

template <class T> struct Layer {
  Geometry g;
  bool kept;  // patches
  Buffer<T> weight, scale, shift, patches, z, y, mean, inverse;
  Buffer<uint8_t> which;  // pixel of a pooled place
};
template <class T> struct Tape {
  Network net;
  Index n;
  const T* x;
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
  Buffer<T> strip, strip2, rows, rows2, sums, wide, one, other, turned;
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

// ---- weights: torch has (out, in, kernel, kernel), a row here is (kernel, kernel, in) ----

template <class T> void turn_weight(const Geometry& g, const T* from, T* to) {
  const Index kk = g.k * g.k;
  for (Index o = 0; o < g.o; o++)
    for (Index c = 0; c < g.c; c++)
      for (Index t = 0; t < kk; t++) to[o * g.taps + t * g.c + c] = from[(o * g.c + c) * kk + t];
}
template <class T> void turn_weight_back(const Geometry& g, const T* from, T* to) {
  const Index kk = g.k * g.k;
  for (Index o = 0; o < g.o; o++)
    for (Index c = 0; c < g.c; c++)
      for (Index t = 0; t < kk; t++) to[(o * g.c + c) * kk + t] = from[o * g.taps + t * g.c + c];
}
// Features: torch has (channel, place) of a picture, here it is (place, channel).
template <class T> void turn_features(const Geometry& g, const T* from, T* to, bool to_torch) {
  const Index places = g.ph * g.pw;
  for (Index n = 0; n < g.n; n++)
    for (Index p = 0; p < places; p++)
      for (Index c = 0; c < g.o; c++) {
        const Index ours = (n * places + p) * g.o + c, theirs = (n * g.o + c) * places + p;
        to[to_torch ? theirs : ours] = from[to_torch ? ours : theirs];
      }
}

// The gradient in a weight, (out, taps), of products of patches (rows, taps) and a gradient (rows, out).
template <class T> void to_weight(const Geometry& g, Index rows, const T* patches, const T* dz, T* out, T beta) {
  if (g.taps >= g.o) return transposed_times(g.o, g.taps, rows, dz, patches, out, beta);
  T* turned = scratch<T>().turned.get(g.o * g.taps);  // the longer side last
  transposed_times<T>(g.taps, g.o, rows, patches, dz, turned, 0);
  for (Index i = 0; i < g.o; i++)
    for (Index j = 0; j < g.taps; j++) out[i * g.taps + j] = (beta != 0 ? out[i * g.taps + j] : 0) + turned[j * g.o + i];
}

// Calls f(set, place, first pixel) for every pooled place, samples in order.
template <class F> void each_place(const Geometry& g, bool pooled, Index sets, F f) {
  for (Index n = 0; n < g.n; n++) {
    const Index set = sets > 1 ? n : 0;
    for (Index y = 0; y < g.ph; y++)
      for (Index x = 0; x < g.pw; x++) {
        const Index place = (n * g.ph + y) * g.pw + x;
        f(set, place, pooled ? (n * g.oh + 2 * y) * g.ow + 2 * x : place);
      }
  }
}

// Per-channel sums of a set become means over its pixels; over all channels of its group for group norm.
template <class T> void means(const Tape<T>& tape, const Geometry& g, T* values, double count) {
  const Index o = g.o, width = tape.channels_of_a_set();
  for (Index s = 0; s < tape.sets(); s++)
    for (Index first = 0; first < o; first += width) {
      T total = 0;
      for (Index j = first; j < first + width; j++) total += values[s * o + j];
      for (Index j = first; j < first + width; j++) values[s * o + j] = total / T(count * width);
    }
}
template <class T> double pixels_of_a_set(const Tape<T>& tape, const Geometry& g) { return double(g.pixels()) / tape.sets(); }

// Lines [a, b) of  e·z + f·tz + c  everywhere,  + p·u + q·w  where a place took its value. Coefficients by set and channel.
template <class T> struct Dense {
  const T *z, *e, *tz, *f, *c, *p, *u, *q, *w;
};
template <class T> void dense(const Tape<T>& tape, const Layer<T>& layer, const Dense<T>& d, Index a, Index b, T* out) {
  const Geometry& g = layer.g;
  const Index o = g.o, sets = tape.sets();
  for (Index line = a; line < b; line++) {
    const Index n = line / g.oh, y = line % g.oh, at = sets > 1 ? n * o : 0;
    const T *__restrict__ e = d.e + at, *__restrict__ c = d.c + at, *__restrict__ u = d.u + at, *__restrict__ f = d.f ? d.f + at : nullptr,
            *__restrict__ w = d.w ? d.w + at : nullptr;
    for (Index x = 0; x < g.ow; x++) {
      const Index pixel = line * g.ow + x;
      T* __restrict__ to = out + (pixel - a * g.ow) * o;
      const T* __restrict__ z = d.z + pixel * o;
      if (f) {
        const T* __restrict__ tz = d.tz + pixel * o;
        for (Index j = 0; j < o; j++) to[j] = z[j] * e[j] + tz[j] * f[j] + c[j];
      } else {
        for (Index j = 0; j < o; j++) to[j] = z[j] * e[j] + c[j];
      }
      if (!tape.net.pool) {
        const T* __restrict__ p = d.p + pixel * o;
        for (Index j = 0; j < o; j++) to[j] += p[j] * u[j];
        if (w) {
          const T* __restrict__ q = d.q + pixel * o;
          for (Index j = 0; j < o; j++) to[j] += q[j] * w[j];
        }
      } else if (y < 2 * g.ph && x < 2 * g.pw) {
        const Index place = ((n * g.ph + y / 2) * g.pw + x / 2) * o;
        const uint8_t me = uint8_t((y & 1) * 2 + (x & 1));
        const uint8_t* __restrict__ which = layer.which.data + place;
        const T* __restrict__ p = d.p + place;
        if (w) {
          const T* __restrict__ q = d.q + place;
          for (Index j = 0; j < o; j++) to[j] += which[j] == me ? p[j] * u[j] + q[j] * w[j] : T(0);
        } else {
          for (Index j = 0; j < o; j++) to[j] += which[j] == me ? p[j] * u[j] : T(0);
        }
      }
    }
  }
}

template <class T> Index strip_of(const Layer<T>& layer) {
  const Geometry& g = layer.g;
  return layer.kept ? g.lines() : std::max<Index>(1, STRIP / (g.ow * g.taps));
}
// Lines [a, b) of the patches of a layer's input: kept, or laid out again.
template <class T> const T* patches_of(const Layer<T>& layer, const T* input, Index a, Index b) {
  if (layer.kept) return layer.patches.data;
  T* strip = scratch<T>().strip.get(strip_of(layer) * layer.g.ow * layer.g.taps);
  lay_out(layer.g, input, a, b, strip);
  return strip;
}

template <class T> struct Pixels {  // the values of the four pixels of a pooled place
  const T *a, *b, *c, *d;
  Pixels(const Geometry& g, const T* maps, Index pixel)
      : a(maps + pixel * g.o), b(a + g.o), c(a + g.ow * g.o), d(c + g.o) {}
  T operator()(uint8_t which, Index j) const { return which & 2 ? (which & 1 ? d[j] : c[j]) : (which & 1 ? b[j] : a[j]); }
};

// ---- forward ----

template <class T> void statistics(const Tape<T>& tape, Layer<T>& layer) {
  const Geometry& g = layer.g;
  const Index o = g.o, sets = tape.sets(), per = g.pixels() / sets, width = tape.channels_of_a_set();
  T* acc = scratch<T>().sums.get(4 * o);
  T *__restrict__ mean = acc, *__restrict__ var = acc + o, *__restrict__ m = acc + 2 * o, *__restrict__ v = acc + 3 * o;
  for (Index s = 0; s < sets; s++) {
    for (Index j = 0; j < o; j++) mean[j] = var[j] = 0;
    for (Index first = 0; first < per; first += BLOCK) {  // Chan's update, block by block
      const Index rows = std::min<Index>(BLOCK, per - first);
      const T* __restrict__ z = layer.z.data + (s * per + first) * o;
      for (Index j = 0; j < o; j++) m[j] = v[j] = 0;
      for (Index r = 0; r < rows; r++)
        for (Index j = 0; j < o; j++) m[j] += z[r * o + j];
      for (Index j = 0; j < o; j++) m[j] /= T(rows);
      for (Index r = 0; r < rows; r++)
        for (Index j = 0; j < o; j++) v[j] += (z[r * o + j] - m[j]) * (z[r * o + j] - m[j]);
      const T share = T(rows) / T(first + rows), cross = T(first) * share;
      for (Index j = 0; j < o; j++) {
        const T gap = m[j] - mean[j];
        mean[j] += gap * share;
        var[j] += v[j] + gap * gap * cross;
      }
    }
    for (Index first = 0; first < o; first += width) {
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
  T* y = layer.y.get(g.places() * o);
  if (!tape.net.pool) {
    each_place(g, false, sets, [&](Index set, Index place, Index) {
      const T *__restrict__ z = layer.z.data + place * o, *__restrict__ a = A + set * o, *__restrict__ b = B + set * o;
      T* __restrict__ to = y + place * o;
      for (Index j = 0; j < o; j++) {
        const T value = z[j] * a[j] + b[j];
        to[j] = value > 0 ? value : T(0);
      }
    });
    return;
  }
  uint8_t* which = layer.which.get(g.places() * o);
  each_place(g, true, sets, [&](Index set, Index place, Index pixel) {
    const Pixels<T> z(g, layer.z.data, pixel);
    const T *__restrict__ a = A + set * o, *__restrict__ b = B + set * o;
    T* __restrict__ to = y + place * o;
    uint8_t* __restrict__ took = which + place * o;
    for (Index j = 0; j < o; j++) {
      const T v0 = z.a[j] * a[j] + b[j], v1 = z.b[j] * a[j] + b[j], v2 = z.c[j] * a[j] + b[j], v3 = z.d[j] * a[j] + b[j];
      const T top = std::max(v0, v1), low = std::max(v2, v3), value = std::max(top, low);
      took[j] = low > top ? uint8_t(2 + (v3 > v2)) : uint8_t(v1 > v0);
      to[j] = value > 0 ? value : T(0);
    }
  });
}

template <class T>
Tape<T>* forward(const Network& net, Index n, const T* x, const T* const* params, const T* const* given, T* features, T* const* seen, bool keep) {
  Tape<T>* tape = pool<Tape<T>>().take();
  tape->net = net, tape->n = n, tape->x = x;
  if (tape->layers.size() != size_t(net.depth)) tape->layers = std::vector<Layer<T>>(net.depth);
  const T* input = x;
  for (int l = 0; l < net.depth; l++) {
    Layer<T>& layer = tape->layers[l];
    const Geometry g = layer.g = geometry(net, n, l);
    const Index o = g.o, sets = tape->sets();
    const T *weight = params[4 * l], *bias = params[4 * l + 1], *scale = params[4 * l + 2], *shift = params[4 * l + 3];
    turn_weight(g, weight, layer.weight.get(o * g.taps));
    for (Index j = 0; j < o; j++) layer.scale.get(o)[j] = scale ? scale[j] : T(1), layer.shift.get(o)[j] = shift ? shift[j] : T(0);
    layer.kept = keep && g.pixels() * g.taps <= KEPT;
    T* z = layer.z.get(g.pixels() * o);
    const Index strip = strip_of(layer);
    for (Index a = 0; a < g.lines(); a += strip) {
      const Index b = std::min(g.lines(), a + strip), rows = (b - a) * g.ow;
      T* patches = layer.kept ? layer.patches.get(g.pixels() * g.taps) : scratch<T>().strip.get(strip * g.ow * g.taps);
      lay_out(g, input, a, b, patches);
      times_transposed<T>(rows, o, g.taps, patches, layer.weight.data, z + a * g.ow * o, 0);
    }
    if (bias && net.norm != BATCH)
      for (Index r = 0; r < g.pixels(); r++)
        for (Index j = 0; j < o; j++) z[r * o + j] += bias[j];
    T *mean = layer.mean.get(sets * o), *inverse = layer.inverse.get(sets * o);
    if (net.norm == BATCH || net.norm == GROUP) statistics(*tape, layer);
    for (Index j = 0; j < o; j++) {
      if (net.norm == NONE) mean[j] = 0, inverse[j] = 1;
      if (net.norm == GIVEN) mean[j] = given[2 * l][j], inverse[j] = 1 / std::sqrt(given[2 * l + 1][j] + T(net.eps));
      if (net.norm == BATCH && seen) seen[2 * l][j] = mean[j], seen[2 * l + 1][j] = 1 / (inverse[j] * inverse[j]) - T(net.eps);
    }
    activate(*tape, layer);
    input = layer.y.data;
  }
  turn_features(tape->layers.back().g, input, features, true);
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
Cotangents<T>* backward(const Tape<T>& tape, const T* features, const T* const* of_seen, T* to_x, T* const* out, T* const* to_given, bool keep) {
  const Network& net = tape.net;
  Scratch<T>& s = scratch<T>();
  Cotangents<T>* state = pool<Cotangents<T>>().take();
  for (auto* each : {&state->at_place, &state->sum, &state->dot, &state->m1, &state->m2})
    if (each->size() != size_t(net.depth)) *each = std::vector<Buffer<T>>(net.depth);
  const Geometry& last = tape.layers.back().g;
  T* arriving = s.one.get(last.places() * last.o);
  turn_features(last, features, arriving, false);
  for (int l = net.depth - 1; l >= 0; l--) {
    const Layer<T>& layer = tape.layers[l];
    const Geometry& g = layer.g;
    const Index o = g.o, sets = tape.sets();
    const T* input = l ? tape.layers[l - 1].y.data : tape.x;
    T *sum = state->sum[l].get(sets * o), *dot = state->dot[l].get(sets * o);
    T* masked = keep ? state->at_place[l].get(g.places() * o) : arriving;
    T *block = s.sums.get(2 * o), *block_sum = block, *block_dot = block + o;
    std::fill(sum, sum + sets * o, T(0)), std::fill(dot, dot + sets * o, T(0)), std::fill(block, block + 2 * o, T(0));
    Index rows = 0;
    auto flush = [&](Index set) {
      for (Index j = 0; j < o; j++) {
        sum[set * o + j] += block_sum[j], dot[set * o + j] += block_dot[j];
        block_sum[j] = block_dot[j] = 0;
      }
      rows = 0;
    };
    const Index per_set = g.places() / sets;
    each_place(g, net.pool, sets, [&](Index set, Index place, Index pixel) {
      const T *__restrict__ y = layer.y.data + place * o, *__restrict__ mean = layer.mean.data + set * o;
      const T* from = arriving + place * o;
      T *to = masked + place * o, *__restrict__ bs = block_sum, *__restrict__ bd = block_dot;
      if (net.pool) {
        const Pixels<T> z(g, layer.z.data, pixel);
        const uint8_t* __restrict__ which = layer.which.data + place * o;
#pragma GCC ivdep
        for (Index j = 0; j < o; j++) {
          const T value = y[j] > 0 ? from[j] : T(0);
          to[j] = value, bs[j] += value, bd[j] += value * (z(which[j], j) - mean[j]);
        }
      } else {
        const T* __restrict__ z = layer.z.data + pixel * o;
#pragma GCC ivdep
        for (Index j = 0; j < o; j++) {
          const T value = y[j] > 0 ? from[j] : T(0);
          to[j] = value, bs[j] += value, bd[j] += value * (z[j] - mean[j]);
        }
      }
      if (++rows == BLOCK || (place + 1) % per_set == 0) flush(set);
    });
    for (Index i = 0; i < sets * o; i++) dot[i] *= layer.inverse.data[i];
    T *m1 = state->m1[l].get(sets * o), *m2 = state->m2[l].get(sets * o);
    const double count = pixels_of_a_set(tape, g);
    for (Index i = 0; i < sets * o; i++) {
      const bool own = net.norm == BATCH || net.norm == GROUP;
      m1[i] = own ? layer.scale.data[i % o] * sum[i] : T(0), m2[i] = own ? layer.scale.data[i % o] * dot[i] : T(0);
    }
    means(tape, g, m1, count), means(tape, g, m2, count);
    T *A = s.wide.get(3 * sets * o), *B = A + sets * o, *C = B + sets * o;
    slopes(tape, layer, m1, m2, A, B, C);
    if (of_seen && net.norm == BATCH)
      for (Index j = 0; j < o; j++) {
        const T spread = of_seen[2 * l + 1] ? 2 * of_seen[2 * l + 1][j] / T(count) : T(0);
        B[j] += spread, C[j] += (of_seen[2 * l] ? of_seen[2 * l][j] / T(count) : T(0)) - spread * layer.mean.data[j];
      }
    T *weight = out[4 * l], *bias = out[4 * l + 1], *scale = out[4 * l + 2], *shift = out[4 * l + 3];
    for (Index j = 0; j < o; j++) {
      T total = 0, along = 0;
      for (Index set = 0; set < sets; set++) total += sum[set * o + j], along += dot[set * o + j];
      if (shift) shift[j] = total;
      if (scale) scale[j] = along;
      if (to_given && to_given[2 * l]) to_given[2 * l][j] = -A[j] * total;
      if (to_given && to_given[2 * l + 1]) to_given[2 * l + 1][j] = -layer.scale.data[j] * along * layer.inverse.data[j] * layer.inverse.data[j] / 2;
      if (bias) bias[j] = 0;
    }
    T* next = nullptr;
    if (l || to_x) {
      next = l ? (arriving == s.one.data ? s.other : s.one).get(g.n * g.h * g.w * g.c) : to_x;
      std::memset(next, 0, g.n * g.h * g.w * g.c * sizeof(T));
    }
    const Index strip = strip_of(layer);
    T* to = weight ? s.strip2.get(std::max<Index>(o * g.taps, strip * g.ow * g.taps) + o * g.taps) : s.strip2.get(strip * g.ow * g.taps + o * g.taps);
    T* gradient = to + strip * g.ow * g.taps;
    for (Index a = 0; a < g.lines(); a += strip) {
      const Index b = std::min(g.lines(), a + strip), count_rows = (b - a) * g.ow;
      T* dz = s.rows.get(strip * g.ow * o);
      dense(tape, layer, {layer.z.data, B, nullptr, nullptr, C, masked, A, nullptr, nullptr}, a, b, dz);
      if (bias && net.norm != BATCH)
        for (Index r = 0; r < count_rows; r++)
          for (Index j = 0; j < o; j++) bias[j] += dz[r * o + j];
      if (weight) to_weight(g, count_rows, patches_of(layer, input, a, b), dz, gradient, T(a ? 1 : 0));
      if (next) {
        times<T>(count_rows, g.taps, o, dz, layer.weight.data, to, 0);
        add_back(g, to, a, b, next);
      }
    }
    if (weight) turn_weight_back(g, gradient, weight);
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
    const T *input = l ? tape.layers[l - 1].y.data : tape.x, *moving = l ? state->y[l - 1].data : nullptr;
    const T *weight = direction[4 * l], *bias = direction[4 * l + 1], *scale = direction[4 * l + 2], *shift = direction[4 * l + 3];
    T *vw = state->weight[l].get(o * g.taps), *vs = state->scale[l].get(o), *vb = state->shift[l].get(o);
    if (weight) turn_weight(g, weight, vw);
    else std::fill(vw, vw + o * g.taps, T(0));
    for (Index j = 0; j < o; j++) vs[j] = scale ? scale[j] : T(0), vb[j] = shift ? shift[j] : T(0);
    T *z = state->z[l].get(g.pixels() * o), *y = state->y[l].get(g.places() * o);
    const Index strip = strip_of(layer);
    for (Index a = 0; a < g.lines(); a += strip) {
      const Index b = std::min(g.lines(), a + strip), rows = (b - a) * g.ow;
      times_transposed<T>(rows, o, g.taps, patches_of(layer, input, a, b), vw, z + a * g.ow * o, 0);
      if (!moving) continue;
      T* patches = s.strip2.get(strip * g.ow * g.taps);
      lay_out(g, moving, a, b, patches);
      times_transposed<T>(rows, o, g.taps, patches, layer.weight.data, z + a * g.ow * o, 1);
    }
    if (bias && net.norm != BATCH)
      for (Index r = 0; r < g.pixels(); r++)
        for (Index j = 0; j < o; j++) z[r * o + j] += bias[j];
    T *mean = state->mean[l].get(sets * o), *dot = state->dot[l].get(sets * o);
    std::fill(mean, mean + sets * o, T(0)), std::fill(dot, dot + sets * o, T(0));
    if (net.norm == BATCH || net.norm == GROUP) {
      const Index per = g.pixels() / sets;
      T *block = s.sums.get(2 * o), *__restrict__ bm = block, *__restrict__ bd = block + o;
      for (Index set = 0; set < sets; set++) {
        const T* __restrict__ middle = layer.mean.data + set * o;
        for (Index first = 0; first < per; first += BLOCK) {
          std::fill(block, block + 2 * o, T(0));
          for (Index r = set * per + first; r < set * per + std::min<Index>(per, first + BLOCK); r++) {
            const T *__restrict__ q = layer.z.data + r * o, *__restrict__ t = z + r * o;
            for (Index j = 0; j < o; j++) bm[j] += t[j], bd[j] += t[j] * (q[j] - middle[j]);
          }
          for (Index j = 0; j < o; j++) mean[set * o + j] += bm[j], dot[set * o + j] += bd[j];
        }
      }
      for (Index i = 0; i < sets * o; i++) dot[i] *= layer.inverse.data[i];
      means(tape, g, mean, double(per)), means(tape, g, dot, double(per));
    }
    T *A = s.wide.get(3 * sets * o), *B = A + sets * o, *C = B + sets * o;
    for (Index i = 0; i < sets * o; i++) {
      A[i] = layer.scale.data[i % o] * layer.inverse.data[i];
      B[i] = (vs[i % o] - A[i] * dot[i]) * layer.inverse.data[i];
      C[i] = vb[i % o] - A[i] * mean[i] - B[i] * layer.mean.data[i];
    }
    each_place(g, net.pool, sets, [&](Index set, Index place, Index pixel) {
      const T *__restrict__ on = layer.y.data + place * o, *__restrict__ a = A + set * o, *__restrict__ b = B + set * o, *__restrict__ c = C + set * o;
      T* __restrict__ to = y + place * o;
      if (net.pool) {
        const Pixels<T> q(g, layer.z.data, pixel), t(g, z, pixel);
        const uint8_t* __restrict__ which = layer.which.data + place * o;
        for (Index j = 0; j < o; j++) {
          const T value = t(which[j], j) * a[j] + q(which[j], j) * b[j] + c[j];
          to[j] = on[j] > 0 ? value : T(0);
        }
      } else {
        const T *__restrict__ q = layer.z.data + pixel * o, *__restrict__ t = z + pixel * o;
        for (Index j = 0; j < o; j++) {
          const T value = t[j] * a[j] + q[j] * b[j] + c[j];
          to[j] = on[j] > 0 ? value : T(0);
        }
      }
    });
  }
  turn_features(tape.layers.back().g, state->y.back().data, features, true);
  return state;
}

// The derivative of a backward pass along a direction, plus the gradient of another cotangent of the features.
template <class T>
void second(const Tape<T>& tape, const Cotangents<T>& first, const Tangents<T>& along, const T* features, T* const* out) {
  const Network& net = tape.net;
  Scratch<T>& s = scratch<T>();
  const Geometry& last = tape.layers.back().g;
  T* arriving = s.one.get(last.places() * last.o);
  if (features) turn_features(last, features, arriving, false);
  else std::memset(arriving, 0, last.places() * last.o * sizeof(T));
  for (int l = net.depth - 1; l >= 0; l--) {
    const Layer<T>& layer = tape.layers[l];
    const Geometry& g = layer.g;
    const Index o = g.o, sets = tape.sets();
    const T *input = l ? tape.layers[l - 1].y.data : tape.x, *moving = l ? along.y[l - 1].data : nullptr;
    const T *vw = along.weight[l].data, *vs = along.scale[l].data, *tz = along.z[l].data, *a = along.mean[l].data, *b = along.dot[l].data;
    const T *m1 = first.m1[l].data, *m2 = first.m2[l].data, *g1 = first.at_place[l].data;
    T* coefficients = s.wide.get(14 * sets * o);
    auto coefficient = [&](int i) { return coefficients + i * sets * o; };
    T *s1 = coefficient(0), *s2 = coefficient(1), *k1 = coefficient(2), *k0 = coefficient(3), *n1 = coefficient(4), *n2 = coefficient(5), *e1 = coefficient(6),
      *e2 = coefficient(7), *e3 = coefficient(8), *e4 = coefficient(9), *e5 = coefficient(10), *A = coefficient(11), *B = coefficient(12), *C = coefficient(13);
    for (Index i = 0; i < sets * o; i++) {  // the normalised value moves by  inverse·tz + k1·z + k0
      const T inverse = layer.inverse.data[i];
      k1[i] = -inverse * b[i] * inverse, k0[i] = -inverse * a[i] - k1[i] * layer.mean.data[i];
      s1[i] = s2[i] = 0;
    }
    T *block = s.sums.get(2 * o), *block_sum = block, *block_dot = block + o;
    std::fill(block, block + 2 * o, T(0));
    Index rows = 0;
    const Index per_set = g.places() / sets;
    each_place(g, net.pool, sets, [&](Index set, Index place, Index pixel) {
      const T *__restrict__ on = layer.y.data + place * o, *__restrict__ old = g1 + place * o, *__restrict__ mean = layer.mean.data + set * o,
              *__restrict__ inverse = layer.inverse.data + set * o, *__restrict__ kz = k1 + set * o, *__restrict__ kc = k0 + set * o;
      T *__restrict__ to = arriving + place * o, *__restrict__ bs = block_sum, *__restrict__ bd = block_dot;
      if (net.pool) {
        const Pixels<T> q(g, layer.z.data, pixel), t(g, tz, pixel);
        const uint8_t* __restrict__ which = layer.which.data + place * o;
#pragma GCC ivdep
        for (Index j = 0; j < o; j++) {
          const T value = on[j] > 0 ? to[j] : T(0), zz = q(which[j], j), tt = t(which[j], j);
          to[j] = value, bs[j] += value;
          bd[j] += value * (zz - mean[j]) * inverse[j] + old[j] * (inverse[j] * tt + kz[j] * zz + kc[j]);
        }
      } else {
        const T *__restrict__ q = layer.z.data + pixel * o, *__restrict__ t = tz + pixel * o;
#pragma GCC ivdep
        for (Index j = 0; j < o; j++) {
          const T value = on[j] > 0 ? to[j] : T(0);
          to[j] = value, bs[j] += value;
          bd[j] += value * (q[j] - mean[j]) * inverse[j] + old[j] * (inverse[j] * t[j] + kz[j] * q[j] + kc[j]);
        }
      }
      if (++rows == BLOCK || (place + 1) % per_set == 0) {
        for (Index j = 0; j < o; j++) {
          s1[set * o + j] += bs[j], s2[set * o + j] += bd[j];
          bs[j] = bd[j] = 0;
        }
        rows = 0;
      }
    });
    const bool own = net.norm == BATCH || net.norm == GROUP;
    for (Index i = 0; i < sets * o; i++) {
      n1[i] = own ? vs[i % o] * first.sum[l].data[i] + layer.scale.data[i % o] * s1[i] : T(0);
      n2[i] = own ? vs[i % o] * first.dot[l].data[i] + layer.scale.data[i % o] * s2[i] : T(0);
    }
    means(tape, g, n1, pixels_of_a_set(tape, g)), means(tape, g, n2, pixels_of_a_set(tape, g));
    for (Index i = 0; i < sets * o; i++) {
      const T inverse = layer.inverse.data[i], square = inverse * inverse, scale = layer.scale.data[i % o];
      const T kz = 2 * square * b[i] * m2[i] - inverse * n2[i];
      e1[i] = inverse * vs[i % o] - square * b[i] * scale, e2[i] = inverse * scale, e3[i] = -square * m2[i], e4[i] = kz * inverse;
      e5[i] = square * b[i] * m1[i] - inverse * n1[i] + square * m2[i] * a[i] - e4[i] * layer.mean.data[i];
    }
    slopes(tape, layer, m1, m2, A, B, C);
    T *weight = out[4 * l], *bias = out[4 * l + 1], *scale = out[4 * l + 2], *shift = out[4 * l + 3];
    for (Index j = 0; j < o; j++) {
      T total = 0, turn = 0;
      for (Index set = 0; set < sets; set++) total += s1[set * o + j], turn += s2[set * o + j];
      if (shift) shift[j] = total;
      if (scale) scale[j] = turn;
      if (bias) bias[j] = 0;
    }
    T* next = nullptr;
    if (l) {
      next = (arriving == s.one.data ? s.other : s.one).get(g.n * g.h * g.w * g.c);
      std::memset(next, 0, g.n * g.h * g.w * g.c * sizeof(T));
    }
    const Index strip = strip_of(layer);
    T *patches = s.strip2.get(strip * g.ow * g.taps + o * g.taps), *gradient = patches + strip * g.ow * g.taps;
    for (Index from = 0; from < g.lines(); from += strip) {
      const Index to = std::min(g.lines(), from + strip), count = (to - from) * g.ow;
      T *tdz = s.rows.get(strip * g.ow * o), *dz = s.rows2.get(strip * g.ow * o);
      dense(tape, layer, {layer.z.data, e4, tz, e3, e5, g1, e1, arriving, e2}, from, to, tdz);
      if (bias && net.norm != BATCH)
        for (Index r = 0; r < count; r++)
          for (Index j = 0; j < o; j++) bias[j] += tdz[r * o + j];
      to_weight(g, count, patches_of(layer, input, from, to), tdz, gradient, T(from ? 1 : 0));
      if (!l) continue;
      dense(tape, layer, {layer.z.data, B, nullptr, nullptr, C, g1, A, nullptr, nullptr}, from, to, dz);
      lay_out(g, moving, from, to, patches);
      to_weight<T>(g, count, patches, dz, gradient, 1);
      times<T>(count, g.taps, o, tdz, layer.weight.data, patches, 0);
      times<T>(count, g.taps, o, dz, vw, patches, 1);
      add_back(g, patches, from, to, next);
    }
    if (weight) turn_weight_back(g, gradient, weight);
    arriving = next;
  }
}

}  // namespace

#define EXPORT(T, NAME)                                                                                                    \
  extern "C" void* forward_##NAME(const Network* net, int64_t n, const T* x, const T* const* params,                       \
                                  const T* const* given, T* features, T* const* seen, int32_t keep) {                     \
    return forward<T>(*net, n, x, params, given, features, seen, keep);                                                    \
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
  extern "C" void give_tape_##NAME(void* state) { pool<Tape<T>>().give(static_cast<Tape<T>*>(state)); }                    \
  extern "C" void give_cotangents_##NAME(void* state) { pool<Cotangents<T>>().give(static_cast<Cotangents<T>*>(state)); }  \
  extern "C" void give_tangents_##NAME(void* state) { pool<Tangents<T>>().give(static_cast<Tangents<T>*>(state)); }
EXPORT(float, float32)
EXPORT(double, float64)
extern "C" void use_blas(void* single, void* both) {
  sgemm = reinterpret_cast<Sgemm>(single);
  dgemm = reinterpret_cast<Dgemm>(both);
}
