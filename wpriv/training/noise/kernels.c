/* Inner loops of private training in C, compiled on the user's machine: see library.py.

   Written for gcc and clang, whose vector types become the widest registers of the processor. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX512F__)
enum { WIDTH = 16, ROWS = 8 };
#elif defined(__AVX__)
enum { WIDTH = 8, ROWS = 4 };
#else
enum { WIDTH = 4, ROWS = 4 };
#endif
/* a tile of ROWS x COLUMNS sums stays in registers, and a panel, BLOCK positions of COLUMNS values of a window each, in
   the first cache; copies of eight values write some values more, for which the rows of a panel have room */
enum { COLUMNS = 2 * WIDTH, BLOCK = 128, COPIED = 8, STEP = COLUMNS + 16, LINE = 64 };
/* pairs of normal numbers that are made and added at a time */
enum { TOGETHER = 512 };

typedef float Vector __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef float Eight __attribute__((vector_size(4 * COPIED), aligned(4), may_alias));

typedef struct {
    int64_t batch, channels, height, width, outputs, out_height, out_width;
    int64_t kernel_height, kernel_width, stride_height, stride_width;
    int64_t pad_height, pad_width, dilation_height, dilation_width;
    int64_t input[4], delta[4]; /* strides of the examples, channels, rows and columns, in numbers */
} Geometry;

typedef struct {
    int64_t place, offset, length; /* in the panel; from the first value of a window; of values */
} Run;

/* Write or add to out [rows, columns] of a matrix with `size` columns the sum over positions of left times right. */
static void tile(const float *left, const float *right, int64_t positions, float *out, int64_t size, int64_t rows,
                 int64_t columns, int add) {
    Vector sums[ROWS][2];
    float edge[ROWS][COLUMNS] = {{0}};
    const int whole = rows == ROWS && columns == COLUMNS;
    float *place = whole ? out : edge[0];
    const int64_t step = whole ? size : COLUMNS;
    if (add && !whole)
        for (int64_t i = 0; i < rows; i++) memcpy(edge[i], out + i * size, sizeof(float) * columns);
    memset(sums, 0, sizeof sums);
    if (add) {
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; i++) {
            sums[i][0] = *(const Vector *)(place + i * step);
            sums[i][1] = *(const Vector *)(place + i * step + WIDTH);
        }
    }
    for (int64_t t = 0; t < positions; t++, left += ROWS, right += STEP) {
        const Vector a = *(const Vector *)right, b = *(const Vector *)(right + WIDTH);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; i++) {
            sums[i][0] += left[i] * a;
            sums[i][1] += left[i] * b;
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++) {
        *(Vector *)(place + i * step) = sums[i][0];
        *(Vector *)(place + i * step + WIDTH) = sums[i][1];
    }
    if (!whole)
        for (int64_t i = 0; i < rows; i++) memcpy(out + i * size, edge[i], sizeof(float) * columns);
}

/* Copy an example with zeros around it, its channels last. */
static void pad(const float *x, float *image, const Geometry *g) {
    const int64_t width = g->width + 2 * g->pad_width, row = width * g->channels;
    memset(image, 0, sizeof(float) * (g->height + 2 * g->pad_height) * row);
    for (int64_t y = 0; y < g->height; y++) {
        float *line = image + (y + g->pad_height) * row + g->pad_width * g->channels;
        const float *from = x + y * g->input[2];
        if (g->input[3] == g->channels && (g->input[1] == 1 || g->channels == 1))
            memcpy(line, from, sizeof(float) * g->width * g->channels);
        else
            for (int64_t c = 0; c < g->channels; c++)
                for (int64_t k = 0; k < g->width; k++)
                    line[k * g->channels + c] = from[c * g->input[1] + k * g->input[3]];
    }
}

/* Copy the gradient at the output of an example in strips of ROWS channels: [strips, positions, ROWS]. */
static void arrange(const float *delta, float *left, const Geometry *g) {
    const int64_t positions = g->out_height * g->out_width, step = g->delta[1];
    for (int64_t p = 0; p < g->outputs; p += ROWS) {
        const int64_t rows = g->outputs - p < ROWS ? g->outputs - p : ROWS;
        for (int64_t y = 0; y < g->out_height; y++) {
            const float *from = delta + p * step + y * g->delta[2];
            float *to = left + p * positions + y * g->out_width * ROWS;
            if (step == 1 && rows == ROWS)
                for (int64_t x = 0; x < g->out_width; x++) memcpy(to + x * ROWS, from + x * g->delta[3], 4 * ROWS);
            else
                for (int64_t i = 0; i < rows; i++)
                    for (int64_t x = 0; x < g->out_width; x++) to[x * ROWS + i] = from[i * step + x * g->delta[3]];
        }
    }
}

/* Divide a window of `size` values into panels of COLUMNS, and each panel into runs that lie together in an image. */
static void find_runs(Run *runs, int64_t *ends, int64_t size, const Geometry *g) {
    const int64_t width = g->width + 2 * g->pad_width;
    const int64_t together = g->dilation_width == 1 ? g->kernel_width * g->channels : g->channels;
    int64_t count = 0;
    for (int64_t k = 0; k < size;) {
        const int64_t rest = together - k % together, panel = COLUMNS - k % COLUMNS;
        const int64_t y = k / (g->kernel_width * g->channels), x = k / g->channels % g->kernel_width;
        const int64_t offset = (y * g->dilation_height * width + x * g->dilation_width) * g->channels + k % g->channels;
        const int64_t length = rest < panel ? rest : panel;
        runs[count++] = (Run){k % COLUMNS, offset, length};
        ends[k / COLUMNS] = count;
        k += length;
    }
}

/* Copy the values of some runs of the windows at `count` positions to a panel. */
static void fill(float *panel, const float *image, const int64_t *windows, int64_t count, const Run *first,
                 const Run *last) {
    for (const Run *run = first; run < last; run++) {
        const float *from = image + run->offset;
        float *to = panel + run->place;
        if (run->length == COLUMNS)
            for (int64_t t = 0; t < count; t++) {
                *(Vector *)(to + t * STEP) = *(const Vector *)(from + windows[t]);
                *(Vector *)(to + t * STEP + WIDTH) = *(const Vector *)(from + windows[t] + WIDTH);
            }
        else
            for (int64_t k = 0; k < run->length; k += COPIED)
                for (int64_t t = 0; t < count; t++)
                    *(Eight *)(to + t * STEP + k) = *(const Eight *)(from + windows[t] + k);
    }
}

/* For each example of the batch, write the gradient [P, kernel, C] of a convolution's kernel, the sum over positions of
   the gradient at the output times the window of the input. Return 0, or 1 without memory. */
int kernel_gradients(const float *x, const float *delta, float *out, const Geometry *g) {
    const int64_t positions = g->out_height * g->out_width, size = g->kernel_height * g->kernel_width * g->channels;
    const int64_t width = g->width + 2 * g->pad_width, pixels = (g->height + 2 * g->pad_height) * width;
    const int64_t panels = (size + COLUMNS - 1) / COLUMNS, strips = (g->outputs + ROWS - 1) / ROWS;
    float *image = calloc(pixels * g->channels + COPIED, sizeof(float));
    float *left = calloc(strips * ROWS * positions, sizeof(float));
    float *panel = aligned_alloc(LINE, BLOCK * STEP * sizeof(float));
    Run *runs = malloc(sizeof(Run) * size);
    int64_t *ends = malloc(sizeof(int64_t) * panels), *windows = malloc(sizeof(int64_t) * positions);
    const int failed = !image || !left || !panel || !runs || !ends || !windows;
    if (!failed) {
        memset(panel, 0, BLOCK * STEP * sizeof(float));
        find_runs(runs, ends, size, g);
        for (int64_t t = 0; t < positions; t++)
            windows[t] = (t / g->out_width * g->stride_height * width + t % g->out_width * g->stride_width) * g->channels;
    }
    for (int64_t example = 0; example < g->batch && !failed; example++) {
        const float *d = delta + example * g->delta[0];
        float *result = out + example * g->outputs * size;
        pad(x + example * g->input[0], image, g);
        arrange(d, left, g);
        for (int64_t start = 0; start < positions; start += BLOCK) {
            const int64_t count = positions - start < BLOCK ? positions - start : BLOCK;
            for (int64_t j = 0; j < panels; j++) {
                const Run *first = runs + (j ? ends[j - 1] : 0), *last = runs + ends[j];
                fill(panel, image, windows + start, count, first, last);
                const int64_t columns = size - j * COLUMNS < COLUMNS ? size - j * COLUMNS : COLUMNS;
                for (int64_t s = 0; s < strips; s++) {
                    const int64_t rows = g->outputs - s * ROWS < ROWS ? g->outputs - s * ROWS : ROWS;
                    tile(left + (s * positions + start) * ROWS, panel, count, result + s * ROWS * size + j * COLUMNS,
                         size, rows, columns, start > 0);
                }
            }
        }
    }
    free(image), free(left), free(panel), free(runs), free(ends), free(windows);
    return failed;
}

/* Write n pairs of normal numbers by the rule of Box and Muller, as _pieces in noise_stream.py does with torch, and the
   length of each pair.

   The lower 31 bits of `high` and of `low` are those of U, `turn` and `fine` have 32 bits of the angle each, which are signed. U = 2^e m with
   m in [sqrt(1/2), sqrt(2)), and log m = 2 artanh s with s = (m - 1) / (m + 1), |s| < 0.172; the angle is a multiple of
   a quarter turn and a rest in [-pi/4, pi/4]. The series of artanh, sine and cosine end where a term is below 2^-54 of
   their value. */
void normal_pairs(int64_t n, const int32_t *high, const int32_t *low, const int32_t *turn, const int32_t *fine,
                  double scale, double *first, double *second, double *length) {
    const double shift = 6755399441055744.0; /* 1.5 2^52: adding it rounds to a whole number, in the last bits */
    for (int64_t i = 0; i < n; i++) {
        const double u = ((high[i] & INT32_MAX) + ((low[i] & INT32_MAX) + 0.5) * 0x1p-31) * 0x1p-31;
        int64_t bits;
        memcpy(&bits, &u, 8);
        const int64_t upper = (bits - 0x3fe6a09e667f3bcd + (1024LL << 52)) >> 52 << 52; /* e + 1024, in place */
        const int64_t digits = bits - upper + (1024LL << 52);
        const int64_t whole = (upper >> 52) + 0x4330000000000000;
        double m, e;
        memcpy(&m, &digits, 8);
        memcpy(&e, &whole, 8);
        e -= 4503599627370496.0 + 1024.0;
        const double s = (m - 1.0) / (m + 1.0), z = s * s;
        double series = 1.0 / 23;
        series = series * z + 1.0 / 21;
        series = series * z + 1.0 / 19;
        series = series * z + 1.0 / 17;
        series = series * z + 1.0 / 15;
        series = series * z + 1.0 / 13;
        series = series * z + 1.0 / 11;
        series = series * z + 1.0 / 9;
        series = series * z + 1.0 / 7;
        series = series * z + 1.0 / 5;
        series = series * z + 1.0 / 3;
        /* log 2 in two parts, of which the first has few digits, so that its product with e is exact */
        const double log_u = e * 0x1.62e42fefa3800p-1 + (e * 0x1.ef35793c76730p-45 + 2 * (s + s * z * series));
        const double size = sqrt(-2.0 * log_u) * scale;
        const double t = turn[i] + fine[i] * 0x1p-32; /* in 2^-32 turns */
        const double rounded = t * 0x1p-30 + shift, quarters = rounded - shift;
        const double angle = (t - quarters * 0x1p30) * 0x1.921fb54442d18p-30, y = angle * angle;
        double sine = 1.0 / 355687428096000, cosine = 1.0 / 20922789888000;
        sine = sine * y - 1.0 / 1307674368000;
        sine = sine * y + 1.0 / 6227020800;
        sine = sine * y - 1.0 / 39916800;
        sine = sine * y + 1.0 / 362880;
        sine = sine * y - 1.0 / 5040;
        sine = sine * y + 1.0 / 120;
        sine = sine * y - 1.0 / 6;
        sine = angle + angle * y * sine;
        cosine = cosine * y - 1.0 / 87178291200;
        cosine = cosine * y + 1.0 / 479001600;
        cosine = cosine * y - 1.0 / 3628800;
        cosine = cosine * y + 1.0 / 40320;
        cosine = cosine * y - 1.0 / 720;
        cosine = cosine * y + 1.0 / 24;
        cosine = cosine * y - 0.5;
        cosine = 1.0 + y * cosine;
        int64_t quarter;
        memcpy(&quarter, &rounded, 8);
        const double x0 = quarter & 1 ? sine : cosine, x1 = quarter & 1 ? cosine : sine;
        first[i] = ((quarter + 1) & 2 ? -x0 : x0) * size;
        second[i] = (quarter & 2 ? -x1 : x1) * size;
        length[i] = size;
    }
}

/* Write grid round(noise + value / grid), for a power of two `grid`, whose quotients are exact. */
static void rounded_sum(int64_t n, const double *noise, const float *value, double grid, float *out) {
    const double inverse = 1.0 / grid;
    for (int64_t i = 0; i < n; i++) out[i] = (float)(grid * rint(noise[i] + value[i] * inverse));
}

/* Add `n` numbers of noise, in grids, to the sums at the coordinates from `place` on, whose parts end at `ends`. */
static void add_to_parts(const double *noise, int64_t n, int64_t place, int64_t *part, const int64_t *ends,
                         int64_t parts, const float *const *values, double grid, float *const *results) {
    for (; *part < parts && n; *part += place == ends[*part]) {
        const int64_t first = place - (*part ? ends[*part - 1] : 0), left = ends[*part] - place;
        const int64_t count = n < left ? n : left;
        rounded_sum(count, noise, values[*part] + first, grid, results[*part] + first);
        noise += count, place += count, n -= count;
    }
}

/* Do what normal_pairs and rounded_sum do, for n pairs whose first numbers belong to the coordinates from `place` on
   and their second ones to those from place + n on, a few at a time, so that the noise stays in the first cache. The
   noise is the sum of some draws, each of which has four rows of bits and a scale. */
void noisy_sum(int64_t n, int64_t draws, const int32_t *const *bits, const double *scales, double grid, int64_t place,
               const int64_t *ends, int64_t parts, const float *const *values, float *const *results) {
    double pairs[2][TOGETHER], more[2][TOGETHER], lengths[TOGETHER];
    int64_t part[2] = {0, 0};
    for (int side = 0; side < 2; side++)
        while (part[side] < parts && ends[part[side]] <= place + side * n) part[side]++;
    for (int64_t i = 0; i < n; i += TOGETHER) {
        const int64_t count = n - i < TOGETHER ? n - i : TOGETHER;
        for (int64_t d = 0; d < draws; d++) {
            const int32_t *const *row = bits + 4 * d;
            double(*to)[TOGETHER] = d ? more : pairs;
            normal_pairs(count, row[0] + i, row[1] + i, row[2] + i, row[3] + i, scales[d], to[0], to[1], lengths);
            if (d)
                for (int side = 0; side < 2; side++)
                    for (int64_t k = 0; k < count; k++) pairs[side][k] += more[side][k];
        }
        for (int side = 0; side < 2; side++)
            add_to_parts(pairs[side], count, place + side * n + i, part + side, ends, parts, values, grid, results);
    }
}
