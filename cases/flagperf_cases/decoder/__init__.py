"""Offer a Llama-family decoder in every parallelism, shared by the large language model cases. Not a case itself."""
