"""What calibration is worth: speed curves, verification policies and closed-loop replay.

`curve` and `curve_files` hold SPS(B), `profile` measures it; each policy has a module (`fixed`, `threshold`,
`early_stop`, `search`, `deepinfer`) and `policies` names them; `visits` runs the closed loop, `replay` counts it,
`simulation` compares confidences and policies, `policy_calibration` fits temperatures for the policy that runs.
"""
