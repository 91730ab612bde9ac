def run(ctx: object) -> None:
    raise NotImplementedError
