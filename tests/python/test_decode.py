"""Pixels of penstock.decode against Pillow's, over a zoo of generated files.

Every kind of JPEG, PNG and WebP that Pillow, zlib and a few edited bytes can make is decoded
by both; not one byte may differ.  Broken files must be refused by both or by neither.
"""

import io
import random
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

import penstock

SIZES = [(1, 1), (2, 3), (7, 5), (8, 8), (16, 16), (17, 31), (33, 18), (40, 64), (101, 67)]


def picture(width, height, bands=3, seed=0):
    """Smooth shapes with some noise, so that every coding tool has something to do."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [
        127 + 90 * np.sin(x / (5 + band) + band) * np.cos(y / (7 - band)) for band in range(bands)
    ]
    noisy = np.stack(planes, axis=-1) + rng.normal(0, 12, (height, width, bands))
    return np.clip(noisy, 0, 255).astype(np.uint8)


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def pillow_pixels(data, mode="RGB"):
    with Image.open(io.BytesIO(data)) as image:
        pixels = np.asarray(image.convert(mode))
    return pixels.reshape(*pixels.shape[:2], -1)


def our_pixels(data, **options):
    return np.from_dlpack(penstock.decode(data, **options))


# --- JPEG -----------------------------------------------------------------------------------


def with_sampling(data, luma, size):
    """The same coded blocks under another sampling of the first component, and another size."""
    at = 2
    while data[at + 1] not in (0xC0, 0xC1, 0xC2):
        at += 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]
    edited = bytearray(data)
    edited[at + 5 : at + 9] = struct.pack(">HH", size[1], size[0])
    edited[at + 11] = luma
    return bytes(edited)


def without_adobe(data):
    at = data.index(b"\xff\xee\x00\x0eAdobe")
    return data[:at] + data[at + 16 :]


def scans_of(data, keep):
    """A progressive file that ends after its first `keep` scans."""
    at = -1
    for _ in range(keep + 1):
        at = data.index(b"\xff\xda", at + 1)
    # tables that belong to the next scan stand before it
    return data[:at] + b"\xff\xd9"


def jpeg_zoo():
    for width, height in SIZES:
        colour = Image.fromarray(picture(width, height))
        grey = Image.fromarray(picture(width, height, 1)[:, :, 0])
        ink = Image.fromarray(picture(width, height, 4), "CMYK")
        name = f"{width}x{height}"
        for progressive in (False, True):
            kind = "progressive" if progressive else "baseline"
            options = {"progressive": progressive, "quality": 80}
            for sampling in ("4:4:4", "4:2:2", "4:2:0"):
                yield (
                    f"{kind}-{sampling}-{name}",
                    saved(colour, "JPEG", subsampling=sampling, **options),
                )
            yield f"{kind}-grey-{name}", saved(grey, "JPEG", **options)
            yield f"{kind}-ink-{name}", saved(ink, "JPEG", **options)
            yield f"{kind}-rgb-{name}", saved(colour, "JPEG", keep_rgb=True, **options)
        yield f"restarts-{name}", saved(colour, "JPEG", restart_marker_blocks=2)
        yield f"ink-without-adobe-{name}", without_adobe(saved(ink, "JPEG"))
        yield f"coarse-{name}", saved(colour, "JPEG", quality=3)
    large = Image.fromarray(picture(64, 64))
    four_blocks = saved(large, "JPEG", subsampling="4:2:0")
    two_blocks = saved(large, "JPEG", subsampling="4:2:2")
    yield "4:1:1", with_sampling(four_blocks, 0x41, (128, 32))
    yield "1:4:1", with_sampling(four_blocks, 0x14, (32, 128))
    yield "4:4:0", with_sampling(two_blocks, 0x12, (32, 128))
    yield "4:1:1-odd", with_sampling(four_blocks, 0x41, (101, 29))
    yield "4:4:0-odd", with_sampling(two_blocks, 0x12, (31, 117))
    # Without vertical subsampling: libjpeg-turbo before 3.0.1 smooths such blocks differently.
    progressive = saved(
        Image.fromarray(picture(101, 67)), "JPEG", progressive=True, subsampling="4:4:4"
    )
    for keep in (1, 2, 5):
        yield f"first-{keep}-scans", scans_of(progressive, keep)
    yield "behind-an-empty-stream", b"\xff\xd8\xff\xd9" + saved(large, "JPEG")
    yield "trailing-junk", saved(large, "JPEG") + bytes(100)
    yield "fill-bytes", b"\xff\xd8" + b"\xff" * 7 + saved(large, "JPEG")[3:]


# --- PNG ------------------------------------------------------------------------------------


def chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


PASSES = [
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
]
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def packed_rows(samples, bits):
    """(h, w, c) integers to PNG rows, each with filter type 0."""
    rows = []
    for row in samples:
        flat = row.reshape(-1)
        if bits == 16:
            body = flat.astype(">u2").tobytes()
        elif bits == 8:
            body = flat.astype(np.uint8).tobytes()
        else:
            digits = ((flat[:, None] >> np.arange(bits - 1, -1, -1)) & 1).astype(np.uint8)
            body = np.packbits(digits.reshape(-1)).tobytes()
        rows.append(b"\0" + body)
    return b"".join(rows)


def png(width, height, bits, colour, interlaced=False, extra=b"", seed=0, palette_entries=None):
    rng = np.random.default_rng(seed)
    shape = (height, width, CHANNELS[colour])
    # 16-bit values on both sides of 255, where grey is clipped
    samples = rng.integers(0, 600 if bits == 16 else 1 << bits, shape)
    if interlaced:
        parts = [samples[y::dy, x::dx] for x, y, dx, dy in PASSES]
        raw = b"".join(packed_rows(part, bits) for part in parts if part.size)
    else:
        raw = packed_rows(samples, bits)
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, int(interlaced))
    out = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    if colour == 3:
        n = palette_entries or 1 << bits
        out += chunk(b"PLTE", rng.integers(0, 256, 3 * n, dtype=np.uint8).tobytes())
    out += extra + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")
    return out


def png_zoo():
    kinds = [
        (1, 0),
        (2, 0),
        (4, 0),
        (8, 0),
        (16, 0),
        (8, 2),
        (16, 2),
        (1, 3),
        (2, 3),
        (4, 3),
        (8, 3),
    ]
    kinds += [(8, 4), (16, 4), (8, 6), (16, 6)]
    for bits, colour in kinds:
        for width, height in [*SIZES, (1, 9), (9, 1), (2, 2), (3, 4), (5, 5)]:
            for interlaced in (False, True):
                kind = "interlaced" if interlaced else "plain"
                yield (
                    f"{kind}-type-{colour}-{bits}-bit-{width}x{height}",
                    png(width, height, bits, colour, interlaced),
                )
    yield "short-palette", png(20, 20, 4, 3, palette_entries=5)
    yield "gamma", png(20, 20, 8, 2, extra=chunk(b"gAMA", struct.pack(">I", 100000)))
    yield "palette-with-alpha", png(20, 20, 8, 3, extra=chunk(b"tRNS", bytes(range(256))))
    yield "palette-with-hole", png(20, 20, 8, 3, extra=chunk(b"tRNS", b"\xff\x00\xff"))
    yield "grey-with-hole", png(20, 20, 8, 0, extra=chunk(b"tRNS", b"\0\x07"))
    yield "colour-with-hole", png(20, 20, 8, 2, extra=chunk(b"tRNS", bytes(6)))
    yield "text", png(20, 20, 8, 2, extra=chunk(b"zTXt", b"key\0\0" + zlib.compress(b"x" * 1000)))
    photo = Image.fromarray(picture(101, 67))
    for level in (0, 1, 9):  # Pillow's writer uses every filter type
        yield f"filters-level-{level}", saved(photo, "PNG", compress_level=level)
    yield "alpha-filters", saved(Image.fromarray(picture(101, 67, 4)), "PNG")
    frames = [Image.fromarray(picture(20, 20, seed=i)) for i in range(3)]
    yield "animated", saved(frames[0], "PNG", save_all=True, append_images=frames[1:])
    yield (
        "animated-with-default",
        saved(frames[0], "PNG", save_all=True, default_image=True, append_images=frames[1:]),
    )
    yield "no-end-chunk", png(20, 20, 8, 2)[:-12]
    wrong_checksum = bytearray(png(20, 20, 8, 2))
    wrong_checksum[-13] ^= 1
    yield "wrong-data-checksum", bytes(wrong_checksum)


# --- WebP -----------------------------------------------------------------------------------


def webp_zoo():
    for width, height in SIZES:
        name = f"{width}x{height}"
        colour = Image.fromarray(picture(width, height))
        clear = Image.fromarray(picture(width, height, 4))
        for quality in (5, 50, 95):
            yield f"lossy-{quality}-{name}", saved(colour, "WEBP", quality=quality)
            yield f"lossy-alpha-{quality}-{name}", saved(clear, "WEBP", quality=quality)
        yield f"lossless-{name}", saved(colour, "WEBP", lossless=True)
        yield f"lossless-alpha-{name}", saved(clear, "WEBP", lossless=True)
        yield f"lossless-exact-{name}", saved(clear, "WEBP", lossless=True, exact=True)
    frames = [Image.fromarray(picture(50, 40, 4, seed=i)) for i in range(3)]
    for lossless in (False, True):
        yield (
            f"animated-{'lossless' if lossless else 'lossy'}",
            saved(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=lossless),
        )
    corner = np.zeros((40, 50, 4), np.uint8)
    corner[10:20, 20:40] = picture(20, 10, 4)
    first = Image.fromarray(corner)
    yield (
        "animated-small-frame",
        saved(
            first,
            "WEBP",
            save_all=True,
            append_images=frames[1:],
            minimize_size=True,
            lossless=True,
        ),
    )
    yield "metadata", saved(frames[0], "WEBP", exif=b"Exif\0\0" + tiff(6), icc_profile=b"x" * 100)


# --- the tests ------------------------------------------------------------------------------


def tiff(orientation, order="<", value_type=3):
    mark = b"II" if order == "<" else b"MM"
    value = (
        struct.pack(order + "I", orientation)
        if value_type == 4
        else struct.pack(order + "HH", orientation, 0)
    )
    return (
        mark
        + struct.pack(order + "HIH", 42, 8, 1)
        + struct.pack(order + "HHI", 0x0112, value_type, 1)
        + value
        + bytes(4)
    )


def assert_same(data, name):
    expected = pillow_pixels(data)
    assert np.array_equal(our_pixels(data), expected), name
    assert np.array_equal(our_pixels(data, channels=1), pillow_pixels(data, "L")), name
    rng = random.Random(name)
    height, width = expected.shape[:2]
    for _ in range(4):
        w, h = rng.randint(1, width), rng.randint(1, height)
        x, y = rng.randint(0, width - w), rng.randint(0, height - h)
        part = our_pixels(data, window=(x, y, w, h))
        assert np.array_equal(part, expected[y : y + h, x : x + w]), (name, x, y, w, h)


@pytest.mark.parametrize("zoo", [jpeg_zoo, png_zoo, webp_zoo])
@pytest.mark.filterwarnings("ignore")
def test_pixels_and_windows_equal_pillows(zoo):
    for name, data in zoo():
        assert_same(data, name)


def outcome(decode, data):
    """Pixels, or None where the file is refused."""
    try:
        return decode(data)
    except Exception:
        return None


def small_files():
    photo = Image.fromarray(picture(24, 20))
    yield "jpeg", saved(photo, "JPEG")
    yield "progressive jpeg", saved(photo, "JPEG", progressive=True)
    yield "restarts", saved(photo, "JPEG", restart_marker_blocks=1)
    yield "png", saved(photo, "PNG")
    yield "interlaced png", png(24, 20, 8, 2, interlaced=True)
    yield "webp", saved(photo, "WEBP")
    yield "lossless webp", saved(photo, "WEBP", lossless=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(dict(small_files())))
def test_a_truncated_file_is_refused_exactly_where_pillow_refuses_it(name):
    data = dict(small_files())[name]
    for length in range(len(data)):
        theirs, ours = outcome(pillow_pixels, data[:length]), outcome(our_pixels, data[:length])
        assert (theirs is None) == (ours is None), (name, length)
        if theirs is not None:
            assert np.array_equal(theirs, ours), (name, length)


@pytest.mark.filterwarnings("ignore")
def test_damaged_jpeg_data_give_pillows_pixels_or_its_refusal():
    rng = random.Random(7)
    for progressive in (False, True):
        sampling = "4:4:4" if progressive else "4:2:0"  # see jpeg_zoo
        photo = Image.fromarray(picture(48, 40))
        data = saved(photo, "JPEG", progressive=progressive, subsampling=sampling)
        start = data.index(b"\xff\xda") + 20
        for _ in range(300):
            damaged = bytearray(data)
            damaged[rng.randrange(start, len(data) - 2)] = rng.randrange(256)
            theirs, ours = (
                outcome(pillow_pixels, bytes(damaged)),
                outcome(our_pixels, bytes(damaged)),
            )
            assert (theirs is None) == (ours is None)
            if theirs is not None:
                assert np.array_equal(theirs, ours)


def test_probe_tells_the_header():
    data = saved(Image.fromarray(picture(33, 18)), "JPEG", subsampling="4:2:0", progressive=True)
    info = penstock.probe(data)
    assert (info["format"], info["width"], info["height"]) == ("jpeg", 33, 18)
    assert info["channels"] == 3 and info["bits"] == 8
    assert info["is_progressive"] and not info["is_grey"]
    info = penstock.probe(png(5, 6, 16, 4))
    assert (info["format"], info["width"], info["height"], info["bits"]) == ("png", 5, 6, 16)
    assert info["is_grey"] and info["channels"] == 2
    info = penstock.probe(saved(Image.fromarray(picture(9, 4)), "WEBP"))
    assert (info["format"], info["width"], info["height"]) == ("webp", 9, 4)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("value_type", [3, 4])
@pytest.mark.parametrize("orientation", [0, 1, 3, 6, 8, 9])
def test_orientation_is_the_one_exif_transpose_uses(order, value_type, orientation):
    exif = b"Exif\0\0" + tiff(orientation, order, value_type)
    photo = Image.fromarray(picture(9, 4))
    for kind in ("JPEG", "PNG", "WEBP"):
        data = saved(photo, kind, exif=exif)
        theirs = Image.open(io.BytesIO(data)).getexif().get(0x0112, 1)
        expected = theirs if 1 <= theirs <= 8 else 1
        assert penstock.probe(data)["orientation"] == expected, kind


def test_xmp_tells_the_orientation_where_exif_does_not():
    xmp = b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    data = saved(Image.fromarray(picture(9, 4)), "JPEG", xmp=xmp)
    assert Image.open(io.BytesIO(data)).getexif()[0x0112] == 6
    assert penstock.probe(data)["orientation"] == 6


@pytest.mark.parametrize("data", [b"", b"\xff\xd8\xff", b"GIF89a" + bytes(50), b"RIFF" + bytes(40)])
def test_what_is_no_image_is_refused(data):
    with pytest.raises(penstock.DataError):
        penstock.decode(data)
