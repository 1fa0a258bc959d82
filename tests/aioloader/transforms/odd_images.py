"""Images of every form that the formats have: modes, bit depths, orientations, containers. Small, and made here.

What Pillow and OpenCV do not write is put together by hand.
"""

import struct
import zlib
from io import BytesIO

import cv2
import numpy as np
from PIL import Image, ImageCms, features

HEIGHT, WIDTH = 16, 24
_Y, _X = np.mgrid[0:HEIGHT, 0:WIDTH]
RGB = np.stack([_X * 10, _Y * 15, 255 - (_X + _Y) * 6], -1).astype(np.uint8)
RGB[2:6, 3:9] = (240, 30, 40)
GREY = RGB[..., 0].copy()
ALPHA = (_Y * 17).astype(np.uint8)
RGBA = np.dstack([RGB, ALPHA])
MODES = {mode: Image.fromarray(RGB).convert(mode) for mode in ("1", "L", "P", "RGB", "CMYK", "YCbCr")}
MODES["LA"] = Image.fromarray(np.dstack([GREY, ALPHA]), "LA")
MODES["RGBA"] = Image.fromarray(RGBA)
_srgb = ImageCms.createProfile("sRGB")
MODES["LAB"] = ImageCms.profileToProfile(MODES["RGB"], _srgb, ImageCms.createProfile("LAB"), outputMode="LAB")
MODES["I;16"] = Image.fromarray(GREY.astype(np.uint16) * 257)
MODES["F"] = Image.fromarray(GREY.astype(np.float32))
MODES["I"] = Image.fromarray(GREY.astype(np.int32))


def saved(mode, form, **options):
    target = BytesIO()
    MODES[mode].save(target, form, **options)
    return target.getvalue()


def exif(orientation, order=">"):
    """Return an EXIF block: the TIFF structure alone."""
    mark = b"MM\0*" if order == ">" else b"II*\0"
    return mark + struct.pack(order + "IHHHIHHI", 8, 1, 0x0112, 3, 1, orientation, 0, 0)


def xmp(orientation, attribute=True):
    """Return an XMP packet with an orientation, in either of the two spellings of RDF."""
    said = (
        f'tiff:Orientation="{orientation}"/>'
        if attribute
        else f"><tiff:Orientation>{orientation}</tiff:Orientation></rdf:Description>"
    )
    return (
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
        f'<rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/" {said}</rdf:RDF></x:xmpmeta>'
    ).encode()


# --- JPEG ---


def segment(marker, body):
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def jpegs():
    for mode in ("L", "RGB", "CMYK", "YCbCr"):
        for subsampling in (0, 1, 2) if mode != "L" else (0,):
            for progressive in (False, True):
                name = f"{mode} subsampling {subsampling}{' progressive' * progressive}"
                yield name, saved(mode, "JPEG", quality=95, subsampling=subsampling, progressive=progressive)
    yield "RGB without YCbCr", saved("RGB", "JPEG", quality=95, keep_rgb=True)
    plain = saved("RGB", "JPEG", quality=95)

    def exif_of(n, order=">"):
        return segment(0xE1, b"Exif\0\0" + exif(n, order))

    def xmp_of(n, attribute=True):
        return segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + xmp(n, attribute))

    for n in range(10):
        yield f"EXIF {n}", plain[:2] + exif_of(n) + plain[2:]
        yield f"EXIF {n} little endian", plain[:2] + exif_of(n, "<") + plain[2:]
        yield f"XMP {n}", plain[:2] + xmp_of(n) + plain[2:]
        yield f"XMP element {n}", plain[:2] + xmp_of(n, False) + plain[2:]
        yield f"EXIF {n} doubled prefix", plain[:2] + segment(0xE1, b"Exif\0\0" * 2 + exif(n)) + plain[2:]
    yield "EXIF 6 and XMP 3", plain[:2] + exif_of(6) + xmp_of(3) + plain[2:]
    yield "XMP 3 and EXIF 6", plain[:2] + xmp_of(3) + exif_of(6) + plain[2:]
    yield "EXIF 1 and XMP 3", plain[:2] + exif_of(1) + xmp_of(3) + plain[2:]
    yield (
        "EXIF without it, XMP 8",
        plain[:2] + exif_of(8).replace(b"\x01\x12", b"\x01\x13") + xmp_of(8) + plain[2:],
    )
    yield "two EXIF blocks", plain[:2] + exif_of(6) + exif_of(3) + plain[2:]
    at = plain.index(b"\xff\xc4")
    yield "EXIF 6 behind the frame header", plain[:at] + exif_of(6) + plain[at:]
    yield "CMYK EXIF 6", (lambda d: d[:2] + exif_of(6) + d[2:])(saved("CMYK", "JPEG"))
    yield "progressive XMP 6", (lambda d: d[:2] + xmp_of(6) + d[2:])(saved("RGB", "JPEG", progressive=True))


# --- PNG ---


def chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def packed(samples, bits):
    """Return rows of samples of 1, 2, 4, 8 or 16 bits: uint16 (height, n) to bytes of each row."""
    if bits == 16:
        return [row.astype(">u2").tobytes() for row in samples]
    if bits == 8:
        return [row.astype(np.uint8).tobytes() for row in samples]
    spread = (samples[:, :, None] >> np.arange(bits - 1, -1, -1)) & 1
    return [np.packbits(row.astype(np.uint8)).tobytes() for row in spread.reshape(len(samples), -1)]


_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


def png(samples, bits, kind, *, palette=None, transparent=None, interlaced=False, before=b"", behind=b""):
    """Return a PNG, by hand.

    Args:
        samples: whole numbers (height, width, channels).
        bits, kind: bit depth and colour type.
        palette, transparent: bodies of PLTE and tRNS.
        before, behind: chunks before and behind the image data.
    """
    height, width, _channels = samples.shape
    body = b""
    for x, y, across, down in _PASSES if interlaced else ((0, 0, 1, 1),):
        part = samples[y::down, x::across].astype(np.uint16)
        if part.size:
            body += b"".join(b"\0" + row for row in packed(part.reshape(len(part), -1), bits))
    head = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, interlaced)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + before
        + (b"" if palette is None else chunk(b"PLTE", palette))
        + (b"" if transparent is None else chunk(b"tRNS", transparent))
        + chunk(b"IDAT", zlib.compress(body)) + behind + chunk(b"IEND", b"")
    )  # fmt: skip


def pngs():
    grey, colour = GREY[..., None].astype(np.uint16), RGB.astype(np.uint16)

    def deep(image):
        return image * 257 - (image % 7) * (image > 200)

    for interlaced in (False, True):
        end = " interlaced" * interlaced
        for bits in (1, 2, 4, 8, 16):
            samples = deep(grey) if bits == 16 else grey >> 8 - bits
            for transparent in (None, struct.pack(">H", int(samples[3, 4, 0]))):
                name = f"grey {bits}{' tRNS' * (transparent is not None)}{end}"
                yield name, png(samples, bits, 0, transparent=transparent, interlaced=interlaced)
            if bits <= 8:
                palette = np.random.default_rng(bits).integers(0, 256, (1 << bits, 3), np.uint8)
                for transparent in (None, bytes([0, 90])):
                    name = f"palette {bits}{' tRNS' * (transparent is not None)}{end}"
                    data = png(
                        grey >> 8 - bits,
                        bits,
                        3,
                        palette=palette.tobytes(),
                        transparent=transparent,
                        interlaced=interlaced,
                    )
                    yield name, data
        for bits in (8, 16):
            samples = deep(colour) if bits == 16 else colour
            for transparent in (None, struct.pack(">HHH", *samples[3, 4].tolist())):
                name = f"RGB {bits}{' tRNS' * (transparent is not None)}{end}"
                yield name, png(samples, bits, 2, transparent=transparent, interlaced=interlaced)
            alpha = ALPHA[..., None].astype(np.uint16) * (257 if bits == 16 else 1)
            first = samples[..., :1]
            yield f"LA {bits}{end}", png(np.dstack([first, alpha]), bits, 4, interlaced=interlaced)
            yield f"RGBA {bits}{end}", png(np.dstack([samples, alpha]), bits, 6, interlaced=interlaced)
    yield "short palette", png(np.minimum(grey >> 4, 3), 8, 3, palette=bytes(range(12)))
    yield "gAMA", png(colour, 8, 2, before=chunk(b"gAMA", struct.pack(">I", 100_000)))
    yield "gAMA 16", png(deep(colour), 16, 2, before=chunk(b"gAMA", struct.pack(">I", 45_455)))
    yield "sRGB, cHRM", png(
        colour, 8, 2,
        before=chunk(b"sRGB", b"\0")
        + chunk(b"cHRM", struct.pack(">8I", 31270, 32900, 64000, 33000, 30000, 60000, 15000, 6000)),
    )  # fmt: skip
    yield "sBIT", png(colour, 8, 2, before=chunk(b"sBIT", bytes([5, 6, 5])))
    yield "bKGD", png(np.dstack([colour, ALPHA]), 8, 6, before=chunk(b"bKGD", struct.pack(">HHH", 9, 9, 9)))
    frames = saved("RGB", "PNG", save_all=True, append_images=[MODES["L"].convert("RGB")])
    yield "APNG", frames
    yield (
        "APNG with a separate image",
        saved("RGB", "PNG", save_all=True, default_image=True, append_images=[MODES["L"].convert("RGB")] * 2),
    )
    raw = b"\nexif\n%8d\n%s\n"
    for n in range(10):
        block, packet = exif(n), xmp(n, n % 2 == 0)
        profile = raw % (len(block) + 6, (b"Exif\0\0" + block).hex().encode())
        for place in ("before", "behind"):

            def put(name, body, place=place):
                return png(colour, 8, 2, **{place: chunk(name, body)})

            yield f"eXIf {n} {place}", put(b"eXIf", block)
        yield f"eXIf {n} with the prefix", put(b"eXIf", b"Exif\0\0" + block)
        yield f"iTXt XMP {n}", put(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + packet)
        if n in (0, 3, 6):
            yield (
                f"iTXt XMP {n} compressed",
                put(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + zlib.compress(packet)),
            )
            yield f"zTXt profile {n}", put(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(profile))
            yield f"tEXt profile {n}", put(b"tEXt", b"Raw profile type exif\0" + profile)
            yield f"tEXt XMP {n}", put(b"tEXt", b"XML:com.adobe.xmp\0" + packet)
    yield (
        "eXIf 6 and XMP 3",
        png(
            colour,
            8,
            2,
            before=chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp(3)),
            behind=chunk(b"eXIf", exif(6)),
        ),
    )


# --- WebP ---


def webps():
    for mode in ("RGB", "RGBA", "L"):
        for lossless in (False, True):
            options = {"lossless": lossless, "quality": 95, "exact": True}
            yield f"{mode}{' lossless' * lossless}", saved(mode, "WEBP", **options)
    for lossless in (False, True):
        yield (
            f"animation{' lossless' * lossless}",
            saved(
                "RGB",
                "WEBP",
                save_all=True,
                append_images=[MODES["L"].convert("RGB")],
                lossless=lossless,
                quality=95,
            ),
        )
    yield (
        "animation RGBA",
        saved("RGBA", "WEBP", save_all=True, append_images=[MODES["RGBA"].rotate(180)], lossless=True),
    )
    for n in range(10):
        yield f"EXIF {n}", saved("RGB", "WEBP", lossless=True, exif=exif(n))
        yield f"EXIF {n} with the prefix", saved("RGB", "WEBP", lossless=True, exif=b"Exif\0\0" + exif(n))
        yield f"XMP {n}", saved("RGB", "WEBP", lossless=True, xmp=xmp(n))
    yield "EXIF 6 with two prefixes", saved("RGB", "WEBP", lossless=True, exif=b"Exif\0\0" * 2 + exif(6))
    yield "EXIF 6 and XMP 3", saved("RGB", "WEBP", lossless=True, exif=exif(6), xmp=xmp(3))


# --- GIF ---


def gif(
    indices,
    *,
    palette,
    screen=None,
    at=(0, 0),
    background=0,
    transparent=None,
    local=False,
    interlaced=False,
    frames=1,
):
    """Return a GIF whose codes are all literal: uint8 (height, width) below 128."""
    height, width = indices.shape
    screen = screen or (width, height)
    table = palette + bytes(3 * 128 - len(palette))
    out = (
        b"GIF89a"
        + struct.pack("<HHBBB", *screen, 0x76 if local else 0xF6, background, 0)
        + (b"" if local else table)
    )
    rows = [y for first, step in ((0, 8), (4, 8), (2, 4), (1, 2)) for y in range(first, height, step)]
    shown = indices[rows] if interlaced else indices
    bits = "".join(
        f"{128:08b}"[::-1] * (i % 100 == 0) + f"{v:08b}"[::-1] for i, v in enumerate(shown.ravel().tolist())
    )
    bits += f"{129:08b}"[::-1]
    bits += "0" * (-len(bits) % 8)
    codes = bytes(int(bits[i : i + 8][::-1], 2) for i in range(0, len(bits), 8))
    for _ in range(frames):
        if transparent is not None:
            out += b"\x21\xf9\x04" + bytes([1 | 2 << 2, 0, 0, transparent]) + b"\0"
        out += b"\x21\xfe\x03abc\0"
        out += b"\x2c" + struct.pack("<HHHHB", *at, width, height, (0x86 if local else 0) | 0x40 * interlaced)
        out += (table if local else b"") + b"\x07"
        out += (
            b"".join(bytes([len(codes[i : i + 200])]) + codes[i : i + 200] for i in range(0, len(codes), 200))
            + b"\0"
        )
    return out + b"\x3b"


def gifs():
    palette = np.random.default_rng(1).integers(1, 256, (128, 3), np.uint8).tobytes()
    indices = GREY >> 1
    for local in (False, True):
        for interlaced in (False, True):
            for transparent in (None, 5, int(indices[3, 4])):
                for background in (0, 9):
                    name = f"transparent {transparent}, background {background}"
                    name += ", local table" * local + ", interlaced" * interlaced
                    yield (
                        name,
                        gif(
                            indices,
                            palette=palette,
                            local=local,
                            interlaced=interlaced,
                            transparent=transparent,
                            background=background,
                        ),
                    )
    for transparent in (None, 7):
        for background in (0, 9):
            yield (
                f"small frame, transparent {transparent}, background {background}",
                gif(
                    indices[:8, :10],
                    palette=palette,
                    screen=(WIDTH, HEIGHT),
                    at=(6, 2),
                    background=background,
                    transparent=transparent,
                ),
            )
    yield (
        "small frame at the corner, local table",
        gif(indices[:8, :10], palette=palette, screen=(WIDTH, HEIGHT), local=True),
    )
    yield "frame beyond the screen", gif(indices, palette=palette, screen=(WIDTH - 4, HEIGHT - 2))
    yield "two frames", gif(indices, palette=palette, transparent=3, frames=2)
    yield "GIF87a", b"GIF87a" + gif(indices, palette=palette)[6:].replace(b"\x21\xfe\x03abc\0", b"")
    for mode in ("1", "L", "P", "RGB", "RGBA"):
        yield f"of Pillow, {mode}", saved(mode, "GIF")
    yield "of Pillow, animation", saved("P", "GIF", save_all=True, append_images=[MODES["P"].rotate(180)])


# --- BMP ---


def bmp(rows, width, height, bits, *, palette=b"", masks=b"", compression=0, core=False, size=40, colours=0):
    """Return a BMP of padded rows, in the order of the file."""
    if core:
        head = struct.pack("<IHHHH", 12, width, abs(height), 1, bits)
    else:
        head = struct.pack(
            "<IiiHHIIiiII", size, width, height, 1, bits, compression, len(rows), 2835, 2835, colours, 0
        )
        head += masks + bytes(max(0, size - 40 - len(masks)))
    start = 14 + len(head) + len(palette)
    return b"BM" + struct.pack("<IHHI", start + len(rows), 0, 0, start) + head + palette + rows


def _padded(rows):
    return b"".join(row + bytes(-len(row) % 4) for row in rows)


def bmps():
    for mode in ("1", "L", "P", "RGB", "RGBA"):
        yield f"of Pillow, {mode}", saved(mode, "BMP")
    grey = GREY.astype(np.uint16)
    for bits in (1, 4, 8):
        colours = np.random.default_rng(bits).integers(0, 256, (1 << bits, 3), np.uint8)
        four = (
            np.dstack([colours, np.zeros((1, len(colours)), np.uint8).T[None]])[0].tobytes()
            if False
            else b"".join(bytes([*c, 0]) for c in colours.tolist())
        )
        rows = packed(grey >> 8 - bits, bits)
        yield f"palette {bits}", bmp(_padded(rows[::-1]), WIDTH, HEIGHT, bits, palette=four)
        yield f"palette {bits}, top down", bmp(_padded(rows), WIDTH, -HEIGHT, bits, palette=four)
        yield (
            f"palette {bits}, core header",
            bmp(_padded(rows[::-1]), WIDTH, HEIGHT, bits, palette=colours.tobytes(), core=True),
        )
        yield (
            f"palette {bits}, header of 108",
            bmp(_padded(rows[::-1]), WIDTH, HEIGHT, bits, palette=four, size=108),
        )
    bgr = RGB[..., ::-1]
    for height, order in ((HEIGHT, -1), (-HEIGHT, 1)):
        end = ", top down" * (height < 0)
        yield f"24{end}", bmp(_padded([row.tobytes() for row in bgr[::order]]), WIDTH, height, 24)
        yield f"32{end}", bmp(RGBA[::order, :, (2, 1, 0, 3)].tobytes(), WIDTH, height, 32)
        r, g, b = (RGB[::order, :, k].astype(np.uint16) for k in range(3))
        five = (r >> 3 << 10 | g >> 3 << 5 | b >> 3).astype("<u2").tobytes()
        six = (r >> 3 << 11 | g >> 2 << 5 | b >> 3).astype("<u2").tobytes()
        yield f"16{end}", bmp(five, WIDTH, height, 16)
        yield (
            f"16, masks 555{end}",
            bmp(five, WIDTH, height, 16, masks=struct.pack("<III", 0x7C00, 0x3E0, 0x1F), compression=3),
        )
        yield (
            f"16, masks 565{end}",
            bmp(six, WIDTH, height, 16, masks=struct.pack("<III", 0xF800, 0x7E0, 0x1F), compression=3),
        )
    wide = RGBA[::-1, :, (2, 1, 0, 3)].tobytes()
    masks = struct.pack("<IIII", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)
    yield "32, masks", bmp(wide, WIDTH, HEIGHT, 32, masks=masks[:12], compression=3)
    yield "32, masks with alpha", bmp(wide, WIDTH, HEIGHT, 32, masks=masks, compression=3, size=108)
    turned = RGBA[::-1].tobytes()
    yield (
        "32, masks of RGBA",
        bmp(
            turned,
            WIDTH,
            HEIGHT,
            32,
            masks=struct.pack("<IIII", 0xFF, 0xFF00, 0xFF0000, 0xFF000000),
            compression=3,
            size=108,
        ),
    )
    four = b"".join(bytes([v, v, 255 - v, 0]) for v in range(256))
    runs = b"".join(b"".join(bytes([1, v]) for v in row.tolist()) + b"\0\0" for row in GREY[::-1]) + b"\0\1"
    yield "RLE8", bmp(runs, WIDTH, HEIGHT, 8, palette=four, compression=1)
    literal = b"".join(bytes([0, WIDTH]) + row.tobytes() + b"\0\0" for row in GREY[::-1]) + b"\0\1"
    yield "RLE8, literal", bmp(literal, WIDTH, HEIGHT, 8, palette=four, compression=1)
    few = b"".join(bytes([v * 16, 255 - v * 16, v * 9, 0]) for v in range(16))
    runs = (
        b"".join(b"".join(bytes([1, v & 0xF0]) for v in row.tolist()) + b"\0\0" for row in GREY[::-1])
        + b"\0\1"
    )
    yield "RLE4", bmp(runs, WIDTH, HEIGHT, 4, palette=few, compression=2)


# --- TIFF ---


def tiff(
    samples,
    bits,
    photometric,
    *,
    order="<",
    big=False,
    planar=1,
    extra=(),
    sample_format=1,
    orientation=None,
    more=(),
    tiled=False,
):
    """Return an uncompressed TIFF, by hand.

    Args:
        samples: numbers (height, width, channels).
        bits: of a sample; 8, 16 and 32 are written in the order of the file.
        extra: values of ExtraSamples.
        more: further entries (tag, type, values).
    """
    height, width, channels = samples.shape
    kind = {1: {8: "u1", 16: "u2", 32: "u4"}, 2: {8: "i1", 16: "i2"}, 3: {16: "f2", 32: "f4", 64: "f8"}}[
        sample_format
    ].get(bits)

    def rows_of(part):
        if kind is None:
            return b"".join(packed(part.reshape(len(part), -1).astype(np.uint16), bits))
        return part.astype(order + kind).tobytes()

    if planar == 2:
        strips = [rows_of(samples[..., k : k + 1]) for k in range(channels)]
    elif tiled:
        wide = np.zeros((-(-height // 16) * 16, -(-width // 16) * 16, channels), samples.dtype)
        wide[:height, :width] = samples
        strips = [
            rows_of(wide[y : y + 16, x : x + 16])
            for y in range(0, len(wide), 16)
            for x in range(0, wide.shape[1], 16)
        ]
    else:
        strips = [rows_of(samples)]
    start = 16 if big else 8
    offsets = [start + sum(map(len, strips[:n])) for n in range(len(strips))]
    entries = [
        (256, 3, [width]), (257, 3, [height]), (258, 3, [bits] * channels), (259, 3, [1]), (262, 3, [photometric]),
        (277, 3, [channels]), (284, 3, [planar]), (339, 3, [sample_format] * channels),
    ]  # fmt: skip
    if tiled:
        entries += [(322, 3, [16]), (323, 3, [16]), (324, 4, offsets), (325, 4, list(map(len, strips)))]
    else:
        entries += [(273, 4, offsets), (278, 3, [height]), (279, 4, list(map(len, strips)))]
    if extra:
        entries.append((338, 3, list(extra)))
    if orientation is not None:
        entries.append((274, 3, [orientation]))
    entries = sorted([*entries, *more])
    body = b"".join(strips)
    body += bytes(len(body) % 2)
    table = start + len(body)
    word, step, room = ("Q", 20, 8) if big else ("I", 12, 4)
    behind = table + (8 if big else 2) + step * len(entries) + room
    head, tail = b"", b""
    for tag, code, values in entries:
        text = (
            bytes(values)
            if code in (1, 7)
            else struct.pack(order + {3: "H", 4: "I"}[code] * len(values), *values)
        )
        head += struct.pack(order + "HH" + word, tag, code, len(values))
        if len(text) <= room:
            head += text + bytes(room - len(text))
        else:
            head += struct.pack(order + word, behind + len(tail))
            tail += text + bytes(len(text) % 2)
    mark = b"II" if order == "<" else b"MM"
    if big:
        first = mark + struct.pack(order + "HHHQ", 43, 8, 0, table)
        count = struct.pack(order + "Q", len(entries))
    else:
        first = mark + struct.pack(order + "HI", 42, table)
        count = struct.pack(order + "H", len(entries))
    return first + body + count + head + bytes(room) + tail


def tiffs():
    for mode in MODES:
        for compression in (None, "tiff_lzw", "tiff_adobe_deflate", "packbits"):
            try:
                yield f"of Pillow, {mode}, {compression}", saved(mode, "TIFF", compression=compression)
            except (OSError, ValueError):
                continue
    yield "of Pillow, 1, group4", saved("1", "TIFF", compression="group4")
    for mode in ("L", "RGB", "YCbCr"):
        yield f"of Pillow, {mode}, jpeg", saved(mode, "TIFF", compression="jpeg", quality=95)
    yield "of Pillow, two pages", saved("RGB", "TIFF", save_all=True, append_images=[MODES["L"]])
    yield "of Pillow, BigTIFF", saved("RGB", "TIFF", big_tiff=True)
    grey, colour, rgba = GREY[..., None], RGB, RGBA
    la = np.dstack([GREY, ALPHA])
    premultiplied = (rgba * (ALPHA[..., None] / 255)).astype(np.uint8)
    premultiplied[..., 3] = ALPHA
    for order in "<>":
        for big in (False, True):
            end = f"{', big endian' * (order == '>')}{', BigTIFF' * big}"
            how = {"order": order, "big": big}
            for bits in (1, 2, 4):
                yield f"grey {bits}{end}", tiff(grey >> 8 - bits, bits, 1, **how)
            for bits in (8, 16):
                scale = 257 if bits == 16 else 1

                def deep(image, scale=scale):
                    return image.astype(np.uint32) * scale

                yield f"grey {bits}{end}", tiff(deep(grey), bits, 1, **how)
                yield f"white is zero {bits}{end}", tiff(deep(grey), bits, 0, **how)
                yield f"RGB {bits}{end}", tiff(deep(colour), bits, 2, **how)
                yield f"RGBA {bits}, unassociated{end}", tiff(deep(rgba), bits, 2, extra=[2], **how)
    for bits in (8, 16):
        scale = 257 if bits == 16 else 1

        def deep(image, scale=scale):
            return image.astype(np.uint32) * scale

        for planar in (1, 2):
            end = ", planes" * (planar == 2)
            yield (
                f"RGBA {bits}, associated{end}",
                tiff(deep(premultiplied), bits, 2, extra=[1], planar=planar),
            )
            yield (
                f"RGBA {bits}, unassociated{end}, again",
                tiff(deep(rgba), bits, 2, extra=[2], planar=planar),
            )
            yield f"RGBX {bits}{end}", tiff(deep(rgba), bits, 2, extra=[0], planar=planar)
            yield f"RGBA {bits} without ExtraSamples{end}", tiff(deep(rgba), bits, 2, planar=planar)
            yield f"LA {bits}, unassociated{end}", tiff(deep(la), bits, 1, extra=[2], planar=planar)
            yield f"LA {bits}, associated{end}", tiff(deep(la), bits, 1, extra=[1], planar=planar)
            yield f"LX {bits}{end}", tiff(deep(la), bits, 1, extra=[0], planar=planar)
            yield f"RGB {bits}{end}, again", tiff(deep(colour), bits, 2, planar=planar)
            yield f"CMYK {bits}{end}", tiff(deep(np.asarray(MODES["CMYK"])), bits, 5, planar=planar)
        yield f"five channels {bits}", tiff(deep(np.dstack([rgba, ALPHA])), bits, 2, extra=[2, 0])
        yield f"tiles {bits}", tiff(deep(colour), bits, 2, tiled=True)
        yield f"tiles {bits} RGBA", tiff(deep(rgba), bits, 2, extra=[2], tiled=True)
    lab = np.asarray(MODES["LAB"])
    yield "CIELAB", tiff(lab, 8, 8)
    yield "ICCLAB", tiff(lab, 8, 9)
    yield "CIELAB with alpha", tiff(np.dstack([lab, ALPHA]), 8, 8, extra=[2])
    yield "YCbCr", tiff(np.asarray(MODES["YCbCr"]), 8, 6, more=[(530, 3, [1, 1])])
    yield "linear raw", tiff(colour, 8, 34892)
    yield "grey of int8", tiff(grey.astype(np.int16) // 2, 8, 1, sample_format=2)
    yield "grey of int16", tiff(grey.astype(np.int16) * 100, 16, 1, sample_format=2)
    yield "grey of uint32", tiff(grey.astype(np.uint32) << 24, 32, 1)
    yield "grey of float32", tiff(grey / np.float32(255), 32, 1, sample_format=3)
    yield "grey of float64", tiff(grey / 255, 64, 1, sample_format=3)
    yield "RGB of float32", tiff(colour / np.float32(255), 32, 2, sample_format=3)
    yield "RGB of uint32", tiff(colour.astype(np.uint32) << 24, 32, 2)
    colours = np.random.default_rng(2).integers(0, 256, (3, 256)) * 257
    for bits in (1, 4, 8):
        table = colours[:, : 1 << bits].ravel().tolist()
        yield f"palette {bits}", tiff(grey >> 8 - bits, bits, 3, more=[(320, 3, table)])
    yield "palette with alpha", tiff(la, 8, 3, extra=[2], more=[(320, 3, colours.ravel().tolist())])
    for n in range(10):
        yield f"orientation {n}", tiff(colour, 8, 2, orientation=n)
        yield f"orientation {n}, RGBA", tiff(rgba, 8, 2, extra=[2], orientation=n)
        yield f"orientation {n}, 16 bits", tiff(colour.astype(np.uint16) * 257, 16, 2, orientation=n)
        yield f"orientation {n}, BigTIFF", tiff(colour, 8, 2, orientation=n, big=True)
        yield f"XMP {n}", tiff(colour, 8, 2, more=[(700, 1, list(xmp(n)))])
    yield "orientation 1 and XMP 6", tiff(colour, 8, 2, orientation=1, more=[(700, 1, list(xmp(6)))])


# --- PNM ---


def pnms():
    for top in (1, 2, 15, 100, 127, 254, 255, 256, 1000, 1023, 4095, 65534, 65535):
        for magic, samples in ((5, GREY[..., None]), (6, RGB)):
            values = np.rint(samples / 255 * top).astype(np.uint16)
            head = f"\n{WIDTH} {HEIGHT}\n{top}\n".encode()
            yield (
                f"P{magic} {top}",
                b"P%d" % magic + head + values.astype(">u2" if top > 255 else "u1").tobytes(),
            )
            text = " ".join(map(str, values.ravel().tolist())).encode()
            for tail in (b"\n", b""):
                yield (
                    f"P{magic - 3} {top}{', no line end' * (not tail)}",
                    b"P%d" % (magic - 3) + head + text + tail,
                )
    low = (GREY > 120).astype(np.uint16)
    yield "P4", f"P4\n{WIDTH} {HEIGHT}\n".encode() + b"".join(packed(low, 1))
    yield "P4, odd width", f"P4 {WIDTH - 3} {HEIGHT}\n".encode() + b"".join(packed(low[:, : WIDTH - 3], 1))
    spaced = " ".join(map(str, low.ravel().tolist())).encode()
    for tail in (b"\n", b""):
        yield f"P1{', no line end' * (not tail)}", f"P1\n{WIDTH} {HEIGHT}\n".encode() + spaced + tail
        yield (
            f"P1 without spaces{', no line end' * (not tail)}",
            f"P1\n{WIDTH} {HEIGHT}\n".encode() + spaced.replace(b" ", b"") + tail,
        )
    yield (
        "comments",
        f"P6 # one\n# two\n{WIDTH} # wide\n{HEIGHT}\n# top\n100 ".encode() + (RGB // 3).tobytes(),
    )
    yield "values above the top", f"P5 {WIDTH} {HEIGHT} 100\n".encode() + GREY.tobytes()


# --- JPEG 2000 and AVIF ---


def jp2s():
    for mode in ("L", "LA", "RGB", "RGBA", "I;16", "YCbCr"):
        for plain in (False, True):
            for irreversible in (False, True):
                name = f"{mode}{', codestream' * plain}{', irreversible' * irreversible}"
                yield name, saved(mode, "JPEG2000", no_jp2=plain, irreversible=irreversible)


def avifs():
    if not features.check("avif"):
        return
    for mode in ("L", "RGB", "RGBA"):
        for subsampling in ("4:4:4", "4:2:0", "4:2:2"):
            yield f"{mode} {subsampling}", saved(mode, "AVIF", quality=100, subsampling=subsampling)
    yield (
        "RGBA, premultiplied",
        saved("RGBA", "AVIF", quality=100, subsampling="4:4:4", alpha_premultiplied=True),
    )
    yield "full range", saved("RGB", "AVIF", quality=100, subsampling="4:4:4", range="limited")
    yield (
        "animation",
        saved(
            "RGB",
            "AVIF",
            quality=100,
            subsampling="4:4:4",
            save_all=True,
            append_images=[MODES["RGB"].rotate(180)],
        ),
    )
    for n in range(1, 9):
        yield f"irot and imir for {n}", saved("RGB", "AVIF", quality=100, subsampling="4:4:4", exif=exif(n))
        yield (
            f"irot and imir for {n}, RGBA",
            saved("RGBA", "AVIF", quality=100, subsampling="4:4:4", exif=exif(n)),
        )
    try:
        for bits in (10, 12):
            image = (RGB[..., ::-1].astype(np.uint32) * ((1 << bits) - 1) // 255).astype(np.uint16)
            options = [cv2.IMWRITE_AVIF_QUALITY, 100, cv2.IMWRITE_AVIF_DEPTH, bits]
            yield f"{bits} bits", cv2.imencode(".avif", image, options)[1].tobytes()
    except (cv2.error, AttributeError):
        pass  # OpenCV was built without it


FORMATS = {
    "JPEG": jpegs, "PNG": pngs, "WebP": webps, "GIF": gifs, "BMP": bmps, "TIFF": tiffs, "PNM": pnms,
    "JPEG 2000": jp2s, "AVIF": avifs,
}  # fmt: skip


def odd_images():
    """Yield (format, name, data) of every image."""
    for form, make in FORMATS.items():
        for name, data in make():
            yield form, name, data
