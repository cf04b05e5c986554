"""Image-text models of six families with random weights, and a CLIP; each with tokenizer, processor and template."""

import json

import torch
import transformers
from tokenizers import AddedToken
from tokenizers.processors import TemplateProcessing
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

from trainers.models.random_model import build_tokenizer

FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "idefics3", "smolvlm", "llava")
QWEN_TOKENS = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
# The templates of the published models, without their parts for videos and tools.
QWEN_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{% for content in message['content'] %}"
    "{% if content['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ content['text'] }}"
    "{% endif %}{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
IDEFICS_TEMPLATE = (
    "<s>{% for message in messages %}{{ message['role'] | capitalize }}"
    "{% if message['content'][0]['type'] == 'image' %}:{% else %}: {% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{ line['text'] }}"
    "{% elif line['type'] == 'image' %}<image>{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
LLAVA_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] != 'system' %}{{ message['role'] | upper }}: {% else %}"
    "{{ raise_exception('only user and assistant roles are supported') }}{% endif %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}<image>\n{% endfor %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}{{ content['text'] }} {% endfor %}"
    "{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)


def tokenizer_with(specials, eos=None):
    tokenizer = build_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": [AddedToken(text, special=True) for text in specials]})
    if eos:
        tokenizer.eos_token = eos
    return tokenizer


def text_config(tokenizer, **more):
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "max_position_embeddings": 4096}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": len(tokenizer)}
    return sizes | heads | more


def save(folder, model_class, config, *, tokenizer, images, template, processor=None):
    """Write the files of a model as its authors publish them; weights wide enough that answers differ."""
    torch.manual_seed(0)
    model = model_class(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(6.0 if parameter.ndim > 1 else 1.0)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    images.save_pretrained(folder)
    if processor is not None:
        (folder / "processor_config.json").write_text(json.dumps(processor))
    (folder / "chat_template.jinja").write_text(template)


def build_qwen(folder, family):
    tokenizer = tokenizer_with(QWEN_TOKENS, eos="<|im_end|>")
    number = tokenizer.convert_tokens_to_ids
    rope = {"rope_scaling": {"mrope_section": [1, 1, 2], "rope_type": "default"}, "head_dim": 8}
    text = text_config(tokenizer, **rope, eos_token_id=number("<|im_end|>"), bos_token_id=None)
    ids = {"image_token_id": number("<|image_pad|>"), "video_token_id": number("<|video_pad|>")}
    ids |= {"vision_start_token_id": number("<|vision_start|>"), "vision_end_token_id": number("<|vision_end|>")}
    vision = {"depth": 2, "hidden_size": 32, "num_heads": 2}
    out = {"intermediate_size": 32, "out_hidden_size": 32}
    name, extra, images = {
        "qwen2_vl": ("Qwen2VL", {"embed_dim": 32, "mlp_ratio": 2}, {}),
        "qwen2_5_vl": ("Qwen2_5_VL", out | {"fullatt_block_indexes": [1]}, {}),
        "qwen3_vl": (
            "Qwen3VL",
            out | {"deepstack_visual_indexes": [0], "num_position_embeddings": 64},
            {"patch_size": 16},
        ),
    }[family]
    config = getattr(transformers, f"{name}Config")(text_config=text, vision_config=vision | extra, **ids)
    made = getattr(transformers, f"{name}ForConditionalGeneration")
    processor = Qwen2VLImageProcessorPil(**images)
    save(folder, made, config, tokenizer=tokenizer, images=processor, template=QWEN_TEMPLATE)


def build_idefics(folder, family):
    tokenizer = tokenizer_with(
        ["<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>"], eos="<end_of_utterance>"
    )
    vision = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    name, images = {
        "idefics3": ("Idefics3", Idefics3ImageProcessorPil),
        "smolvlm": ("SmolVLM", SmolVLMImageProcessorPil),
    }[family]
    config = getattr(transformers, f"{name}Config")(
        text_config=text_config(tokenizer, model_type="llama", pad_token_id=tokenizer.pad_token_id),
        vision_config={**vision, "image_size": 32, "patch_size": 8},
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=tokenizer.pad_token_id,
    )
    save(
        folder,
        getattr(transformers, f"{name}ForConditionalGeneration"),
        config,
        tokenizer=tokenizer,
        images=images(size={"longest_edge": 64}, max_image_size={"longest_edge": 32}),
        template=IDEFICS_TEMPLATE,
        processor={"processor_class": f"{name}Processor", "image_seq_len": 4},
    )


def build_llava(folder, family):
    tokenizer = tokenizer_with(["<image>"])
    vision = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.LlavaConfig(
        text_config=text_config(tokenizer, model_type="llama"),
        vision_config={**vision, "model_type": "clip_vision_model", "image_size": 28, "patch_size": 14},
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_seq_length=4,
    )
    settings = {"processor_class": "LlavaProcessor", "patch_size": 14, "vision_feature_select_strategy": "default"}
    save(
        folder,
        transformers.LlavaForConditionalGeneration,
        config,
        tokenizer=tokenizer,
        images=CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}),
        template=LLAVA_TEMPLATE,
        processor={**settings, "num_additional_image_tokens": 1, "image_token": "<image>"},
    )


def build(folder, family):
    """Write a model of the family into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    {"idefics3": build_idefics, "smolvlm": build_idefics, "llava": build_llava}.get(family, build_qwen)(folder, family)
    return folder


def build_clip(folder):
    """Write a CLIP into the folder."""
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    tokenizer = build_tokenizer()
    end = (tokenizer.eos_token, tokenizer.eos_token_id)  # which CLIP's tokenizer appends, and CLIP reads the text there
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=f"$A {end[0]}", special_tokens=[end])
    text = {**small, "vocab_size": len(tokenizer), "max_position_embeddings": 64, "eos_token_id": end[1]}
    vision = {**small, "image_size": 28, "patch_size": 14}
    torch.manual_seed(0)
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
    transformers.CLIPModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}).save_pretrained(folder)
    return folder
