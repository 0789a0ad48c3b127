"""What tests compare with: torchvision's PIL path, and pictures that show differences."""

import io

import pytest

Image = pytest.importorskip("PIL.Image")
torch = pytest.importorskip("torch")

SCHEMAS = (
    "nms(Tensor a, Tensor b, float c) -> Tensor",
    "qnms(Tensor a, Tensor b, float c) -> Tensor",
    "roi_align(Tensor a, Tensor b, float c, int d, int e, int f, bool g) -> Tensor",
    "roi_pool(Tensor a, Tensor b, float c, int d, int e) -> (Tensor, Tensor)",
    "ps_roi_align(Tensor a, Tensor b, float c, int d, int e, int f) -> (Tensor, Tensor)",
    "ps_roi_pool(Tensor a, Tensor b, float c, int d, int e) -> (Tensor, Tensor)",
    "deform_conv2d(Tensor a) -> Tensor",
)


def import_torchvision():
    """torchvision's Python part works without its compiled operators once their names exist."""
    try:
        import torchvision.transforms
    except RuntimeError:
        global _library  # the definitions live as long as this object
        _library = torch.library.Library("torchvision", "DEF")
        for schema in SCHEMAS:
            _library.define(schema)
        import torchvision.transforms
    except ImportError:
        pytest.skip("torchvision is not installed", allow_module_level=True)
    return torchvision.transforms


def noise(rng, width, height, mode="RGB"):
    """Noise with many values at the ends of the range, where clipping shows."""
    channels = 3 if mode == "RGB" else 1
    pixels = bytearray(rng.randbytes(width * height * channels))
    if rng.random() < 0.3:
        pixels = bytearray(255 if value > 127 else 0 for value in pixels)
    return Image.frombytes(mode, (width, height), bytes(pixels))


def png(image):
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def to_bytes(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
