"""A Llama-family decoder in every parallelism: what the large language model cases share. Not a case itself."""
